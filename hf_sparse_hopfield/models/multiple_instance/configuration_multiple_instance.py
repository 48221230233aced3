# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Configuration of the multiple-instance classifier."""

from collections.abc import Sequence
from typing import Any

from ...checks import check_choice, check_dropout, check_flag, check_integer, check_number, is_integer
from ...configuration import SparseHopfieldConfig
from ..registration import OwnConfig


ATTENTION_AGGREGATIONS = ("attention", "gated_attention")
AGGREGATIONS = ("hopfield", "pooling", *ATTENTION_AGGREGATIONS)


class SparseHopfieldMultipleInstanceConfig(OwnConfig):
    """
    Configuration of [`SparseHopfieldForMultipleInstanceClassification`].

    Args:
        input_size (`int`, *optional*, defaults to 4): Width of an instance.
        embedding_layers (`int`, *optional*, defaults to 0):
            Linear layers with ReLU that embed each instance before the aggregation; 0 aggregates the instances themselves.
        embedding_size (`int`, *optional*, defaults to 64): Width of these layers.
        aggregation (`str`, *optional*, defaults to `"pooling"`): How a bag becomes one vector.

            - `"pooling"`: learned state patterns retrieve from the bag ([`SparseHopfieldPooling`]);
            - `"hopfield"`: each instance retrieves from its own bag, and the results are averaged ([`SparseHopfield`]);
            - `"attention"`, `"gated_attention"`: a weighted mean of the instances, with weights from a small network that
              sees one instance at a time (Ilse et al. 2018, *Attention-based deep multiple instance learning*).
        num_heads (`int`, *optional*, defaults to 8): Number of heads. Ilse et al. use one.
        head_size (`int`, *optional*, defaults to 8):
            Width of a head's association space; with attention, `num_heads * head_size` is the width of the network.
        quantity (`int`, *optional*, defaults to 1): Learned state patterns of `"pooling"`.
        alpha (`float`, *optional*):
            Member of the entmax family, in [1, 2]: 1 is softmax (dense), 2 is sparsemax. Defaults to 2 for `"pooling"` and
            `"hopfield"`, and to 1, as in the literature, for attention. One number, or, for Hopfield, one per head.
        beta (`float`, *optional*, defaults to 1.0):
            Positive multiplier on `scaling`; for attention, on the scores. One number, or, for Hopfield, one per head.
        learn_alpha, learn_beta (`bool`, *optional*, defaults to `False`): Learn one value per head. Not for attention.
        scaling (`float`, *optional*, defaults to `1 / sqrt(head_size)`): Factor on the scores. Not for attention.
        update_steps (`int`, *optional*, defaults to 0):
            Updates of the state before the read-out; `None` or negative: until convergence. Not for attention.
        update_eps (`float`, *optional*, defaults to 1e-4):
            A state stops updating once it moves by less. Not for attention.
        normalize (`bool`, *optional*, defaults to `False`):
            Apply layer norm to state and stored patterns. It removes mean and length of an instance, which is a lot if the
            instance has four features: nothing remains of the bits 1111.
        bag_dropout (`float`, *optional*, defaults to 0.0): Probability of dropping a weight of the association matrix.
        classifier_activation (`str`, *optional*):
            Name of a transformers activation between aggregation and classifier, such as `"relu"`.
        initializer_range (`float`, *optional*):
            Standard deviation of all initial weights; biases are then zero. By default, linear maps start like
            `torch.nn.Linear` and state patterns from N(0, 1). With 0.02, as in larger models, all scores of a bag start
            near zero, and a short training ends before they differ.
        **kwargs: Arguments of [`~transformers.PreTrainedConfig`], such as `num_labels`.

    Example:

    ```python
    >>> from hf_sparse_hopfield import SparseHopfieldMultipleInstanceConfig
    >>> SparseHopfieldMultipleInstanceConfig(input_size=230, embedding_layers=1).alpha
    2.0
    >>> SparseHopfieldMultipleInstanceConfig(aggregation="gated_attention").alpha
    1.0

    ```
    """

    model_type = "sparse_hopfield_multiple_instance"

    def __init__(
        self,
        input_size: int = 4,
        embedding_layers: int = 0,
        embedding_size: int = 64,
        aggregation: str = "pooling",
        num_heads: int = 8,
        head_size: int = 8,
        quantity: int = 1,
        alpha: float | Sequence[float] | None = None,
        beta: float | Sequence[float] = 1.0,
        learn_alpha: bool = False,
        learn_beta: bool = False,
        scaling: float | Sequence[float] | None = None,
        update_steps: int | None = 0,
        update_eps: float = 1e-4,
        normalize: bool = False,
        bag_dropout: float = 0.0,
        classifier_activation: str | None = None,
        initializer_range: float | None = None,
        **kwargs: Any,
    ) -> None:
        check_choice("aggregation", aggregation, AGGREGATIONS)
        check_integer("embedding_layers", embedding_layers, least=0)
        sizes = {
            "input_size": input_size,
            "embedding_size": embedding_size,
            "num_heads": num_heads,
            "head_size": head_size,
            "quantity": quantity,
        }
        for name, size in sizes.items():
            check_integer(name, size)
        check_dropout("bag_dropout", bag_dropout)
        check_number("update_eps", update_eps)
        check_number("initializer_range", initializer_range, positive=True, optional=True)
        check_flag("normalize", normalize)
        if update_steps is not None and not is_integer(update_steps):
            raise ValueError(f"update_steps must be an integer, or None for until convergence, got {update_steps!r}.")
        if scaling is not None:
            for number in scaling if isinstance(scaling, (list, tuple)) else [scaling]:
                check_number("scaling", number, positive=True)
        attention = aggregation in ATTENTION_AGGREGATIONS
        if attention:
            _refuse_settings(
                aggregation,
                {
                    "learn_alpha": learn_alpha,
                    "learn_beta": learn_beta,
                    "scaling": scaling is not None,
                    "update_steps": update_steps != 0,
                    "update_eps": update_eps
                    not in (0.0, 1e-4),  # 0 is the default tolerance of the training arguments
                    "normalize": normalize,
                    "quantity": quantity != 1,
                },
            )
        elif aggregation == "hopfield" and quantity != 1:
            raise ValueError(f"quantity={quantity} needs aggregation='pooling': 'hopfield' has no learned states.")
        # This checks the values, in one place for all models.
        alpha = (1.0 if attention else 2.0) if alpha is None else alpha
        retrieval = SparseHopfieldConfig(alpha, beta, learn_alpha=learn_alpha, learn_beta=learn_beta).to_dict()
        for name, value in {"alpha": retrieval["alpha"], "beta": retrieval["beta"], "scaling": scaling}.items():
            if isinstance(value, (list, tuple)):
                _check_per_head(name, value, aggregation, num_heads)
        self.input_size = input_size
        self.embedding_layers = embedding_layers
        self.embedding_size = embedding_size
        self.aggregation = aggregation
        self.num_heads = num_heads
        self.head_size = head_size
        self.quantity = quantity
        self.alpha: float | list[float] = retrieval["alpha"]
        self.beta: float | list[float] = retrieval["beta"]
        self.learn_alpha = learn_alpha
        self.learn_beta = learn_beta
        self.scaling = scaling
        self.update_steps = update_steps
        self.update_eps = update_eps
        self.normalize = normalize
        self.bag_dropout = bag_dropout
        self.classifier_activation = classifier_activation
        self.initializer_range = initializer_range
        super().__init__(**kwargs)

    @property
    def hidden_size(self) -> int:
        """Width of the aggregated instances."""
        return self.embedding_size if self.embedding_layers else self.input_size


def _refuse_settings(aggregation: str, is_given: dict[str, bool]) -> None:
    without_effect = [name for name, given in is_given.items() if given]
    if without_effect:
        raise ValueError(
            f"{', '.join(without_effect)} of the Hopfield layers cannot be set with aggregation={aggregation!r}; "
            f"leave out what is listed, or use 'pooling' or 'hopfield'."
        )


def _check_per_head(name: str, value: Sequence[float], aggregation: str, num_heads: int) -> None:
    if aggregation in ATTENTION_AGGREGATIONS:
        raise ValueError(
            f"{name} must be one number with aggregation={aggregation!r}, got {value}; one per head needs 'pooling' or "
            f"'hopfield'."
        )
    if len(value) != num_heads:
        raise ValueError(f"{name} must be one number or one for each of num_heads={num_heads}, got {value}.")
