#!/usr/bin/env bash
# A small model trained with 8 bits from the start and exported: what the examples after 05 read.
# usage: export_a_run.sh STEELYARD FOLDER [OPTION OF EXPORT]...
set -euo pipefail

rm -rf "$2"
"$1" train fashion-mnist-mlp-w8a8 --run-dir "$2" --set init=null --set train.epochs=1 \
    --set schedule.freeze_observers=null --set train.optimizer.lr=0.05
"$1" export "$2" "${@:3}"
