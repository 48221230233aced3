# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Configuration of the multiple-instance classifier."""

from ...configuration import SparseHopfieldConfig
from ..checks import check_dropout, check_finite, check_sizes
from ..registration import OwnConfig


AGGREGATIONS = ("hopfield", "pooling", "attention", "gated_attention")


class SparseHopfieldMultipleInstanceConfig(OwnConfig):
    """
    Configuration of [`SparseHopfieldForMultipleInstanceClassification`].

    Args:
        input_size (`int`, *optional*, defaults to 4): Width of an instance.
        embedding_layers (`int`, *optional*, defaults to 0):
            Linear layers with ReLU before the aggregation, instance by instance; 0 aggregates the instances themselves.
        embedding_size (`int`, *optional*, defaults to 64): Width of these layers.
        aggregation (`str`, *optional*, defaults to `"pooling"`): How a bag becomes one vector.

            - `"pooling"`: what learned state patterns retrieve from the bag ([`SparseHopfieldPooling`]);
            - `"hopfield"`: the mean of what the instances retrieve from their own bag ([`SparseHopfield`]);
            - `"attention"`, `"gated_attention"`: the weighted mean of the instances, with weights from a small network
              that sees one instance at a time (Ilse et al. 2018, *Attention-based deep multiple instance learning*).
        num_heads (`int`, *optional*, defaults to 8): Heads. Ilse et al. have one.
        head_size (`int`, *optional*, defaults to 8):
            Width of a head's association space; with attention, `num_heads * head_size` is the width of the network.
        quantity (`int`, *optional*, defaults to 1): Learned state patterns of `"pooling"`.
        alpha (`float`, *optional*):
            Member of the entmax family, in [1, 2]: 1 is softmax (dense), 2 is sparsemax. By default 2 for `"pooling"` and
            `"hopfield"`, and 1, as in the literature, for the attention ones. One number, or for Hopfield one per head.
        beta (`float`, *optional*, defaults to 1.0):
            Positive multiplier on `scaling`; a factor on the scores of attention. One number, or for Hopfield one per head.
        learn_alpha, learn_beta (`bool`, *optional*, defaults to `False`): Learn them, one value per head. Not for attention.
        scaling (`float`, *optional*, defaults to `1 / sqrt(head_size)`): Factor on the scores. Not for attention.
        update_steps (`int`, *optional*, defaults to 0):
            Updates of the state before the read-out; `None` or negative: until convergence. Not for attention.
        update_eps (`float`, *optional*, defaults to 1e-4):
            A state that moves by less is not updated any more. Not for attention.
        normalize (`bool`, *optional*, defaults to `False`):
            Layer norm on state and stored patterns. It takes mean and length from an instance, which is much if the
            instance has four features: from bits 1111 it leaves nothing.
        bag_dropout (`float`, *optional*, defaults to 0.0): Probability of dropping a weight of the association matrix.
        classifier_activation (`str`, *optional*):
            Name of an activation of transformers between aggregation and classifier, such as `"relu"`.
        initializer_range (`float`, *optional*):
            Standard deviation of all initial weights, biases then being zero. By default linear maps begin as
            `torch.nn.Linear` does and state patterns from N(0, 1): with 0.02, as in larger models, all scores of a bag begin
            near zero, and short training ends before they differ.
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
        alpha: float | None = None,
        beta: float = 1.0,
        learn_alpha: bool = False,
        learn_beta: bool = False,
        scaling: float | None = None,
        update_steps: int | None = 0,
        update_eps: float = 1e-4,
        normalize: bool = False,
        bag_dropout: float = 0.0,
        classifier_activation: str | None = None,
        initializer_range: float | None = None,
        **kwargs,
    ):
        if aggregation not in AGGREGATIONS:
            raise ValueError(f"aggregation must be one of {', '.join(AGGREGATIONS)}, got {aggregation!r}.")
        if isinstance(embedding_layers, bool) or not isinstance(embedding_layers, int) or embedding_layers < 0:
            raise ValueError(f"embedding_layers must be an integer of at least 0, got {embedding_layers!r}.")
        check_sizes(
            input_size=input_size,
            embedding_size=embedding_size,
            num_heads=num_heads,
            head_size=head_size,
            quantity=quantity,
        )
        check_dropout("bag_dropout", bag_dropout)
        check_finite("update_eps", update_eps, positive=False)
        if update_steps is not None and (isinstance(update_steps, bool) or not isinstance(update_steps, int)):
            raise ValueError(f"update_steps must be an integer, or None for until convergence, got {update_steps!r}.")
        if scaling is not None:
            for number in scaling if isinstance(scaling, (list, tuple)) else [scaling]:
                check_finite("scaling", number, positive=True)
        if initializer_range is not None:
            check_finite("initializer_range", initializer_range, positive=True)
        if not isinstance(normalize, bool):
            raise TypeError(f"normalize must be True or False, got {normalize!r}.")
        attention = aggregation in ("attention", "gated_attention")
        if attention:
            given = {
                "learn_alpha": learn_alpha,
                "learn_beta": learn_beta,
                "scaling": scaling is not None,
                "update_steps": update_steps != 0,
                "update_eps": update_eps not in (0.0, 1e-4),  # 0: no tolerance, the default of the training arguments
                "normalize": normalize,
                "quantity": quantity != 1,
            }
            without_effect = [name for name, is_given in given.items() if is_given]
            if without_effect:
                raise ValueError(
                    f"{', '.join(without_effect)} of the Hopfield layers cannot be set with aggregation={aggregation!r}; "
                    f"leave out what is listed, or use 'pooling' or 'hopfield'."
                )
        elif aggregation == "hopfield" and quantity != 1:
            raise ValueError(f"quantity={quantity} needs aggregation='pooling': 'hopfield' has no learned states.")
        # It checks itself, in one place for all models.
        alpha = (1.0 if attention else 2.0) if alpha is None else alpha
        retrieval = SparseHopfieldConfig(alpha, beta, learn_alpha=learn_alpha, learn_beta=learn_beta)
        for name, value in {"alpha": retrieval.alpha, "beta": retrieval.beta, "scaling": scaling}.items():
            if not isinstance(value, (list, tuple)):
                continue
            if attention:
                raise ValueError(
                    f"{name} must be one number with aggregation={aggregation!r}, got {value}; one per head needs "
                    f"'pooling' or 'hopfield'."
                )
            if len(value) != num_heads:
                raise ValueError(f"{name} must be one number or one for each of num_heads={num_heads}, got {value}.")
        self.input_size = input_size
        self.embedding_layers = embedding_layers
        self.embedding_size = embedding_size
        self.aggregation = aggregation
        self.num_heads = num_heads
        self.head_size = head_size
        self.quantity = quantity
        self.alpha = retrieval.alpha
        self.beta = retrieval.beta
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
        """Width of what is aggregated."""
        return self.embedding_size if self.embedding_layers else self.input_size
