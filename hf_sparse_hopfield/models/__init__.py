# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The models of this package, registered with the Auto classes of transformers.

A model is a package `models/NAME/` with `configuration_NAME.py` and `modeling_NAME.py`, and an entry in `OWN_MODELS`. Its
`__init__.py` is empty, because the configuration is imported while transformers is only partly imported. The
configuration derives from [`~models.registration.OwnConfig`], sets its attributes and then calls `super().__init__`.
Configurations are registered when transformers' `AutoConfig` is imported, models when their first configuration is made.
"""

from typing import NamedTuple

from ..lazy import lazy_names


class OwnModel(NamedTuple):
    """
    Location of the classes of one model type.

    Args:
        package (`str`): Name of the package under `models/`.
        configuration (`str`): Name of the configuration class, in `configuration_PACKAGE.py`.
        auto_classes (`dict[str, str]`): Auto class to model class, in `modeling_PACKAGE.py`.
    """

    package: str
    configuration: str
    auto_classes: dict[str, str]


OWN_MODELS = {
    "sparse_hopfield_crossformer": OwnModel(
        "crossformer",
        "SparseHopfieldCrossformerConfig",
        {"AutoModelForTimeSeriesPrediction": "SparseHopfieldCrossformerForPrediction"},
    ),
    "sparse_hopfield_multiple_instance": OwnModel(
        "multiple_instance",
        "SparseHopfieldMultipleInstanceConfig",
        {"AutoModelForSequenceClassification": "SparseHopfieldForMultipleInstanceClassification"},
    ),
}

_PACKAGE_OF = {
    name: f"{own.package}.{kind}_{own.package}"
    for own in OWN_MODELS.values()
    for kind, names in (("configuration", [own.configuration]), ("modeling", own.auto_classes.values()))
    for name in names
} | {
    "MultipleInstanceCollator": "multiple_instance.data_collator",
    "SparseHopfieldCrossformerOutput": "crossformer.modeling_crossformer",
    "TimeSeriesWindows": "crossformer.windows",
    "split_lengths": "crossformer.windows",
    "split_series": "crossformer.windows",
    "standardization": "feature_standardization",
}

__all__ = sorted(_PACKAGE_OF)


__getattr__, __dir__ = lazy_names(__name__, _PACKAGE_OF)
