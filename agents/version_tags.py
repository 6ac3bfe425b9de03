"""Names under which things are noted with a registered version, by training and by evaluation."""

from __future__ import annotations

# tags
TRAINING = "training"  # the MLflow run that trained the version and its siblings
EVALUATION_RUN = "evaluation_run"  # the MLflow run of the last evaluation
TEST_SAVING = "test_saving_percent"  # of best static's cost on test traffic

# metrics
VALIDATION_SAVING = "validation_saving_ratio"  # share of best static's cost on validation traffic
VALIDATION_EXCESS = "validation_unsafe_excess_ratio"  # share of unsafe intervals there above what is tolerated
LEARNED_WITHIN = "intervals_until_within_1_percent"  # of training, see agents.learning_curve
