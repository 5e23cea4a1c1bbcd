#!/usr/bin/env bash
# Trains a small model with 8 bits from the start and exports it, for the examples after 05.
# usage: export_a_run.sh STEELYARD FOLDER [OPTION OF EXPORT]...
set -euo pipefail

rm -rf "$2"
"$1" train fashion-mnist-mlp-w8a8 --run-dir "$2" --set init=null --set train.epochs=1 \
    --set schedule.freeze_observers=null --set train.optimizer.lr=0.05
"$1" export "$2" "${@:3}"
