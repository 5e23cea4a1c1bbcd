/* Runs the C program of a model on samples of codes: from stdin to stdout, one after another. */
#include <stdio.h>

#include "model.h"

static int8_t arena[STEELYARD_ARENA_BYTES];

int main(void) {
  while (fread(arena + STEELYARD_INPUT_OFFSET, 1, STEELYARD_INPUT_SIZE, stdin) ==
         STEELYARD_INPUT_SIZE) {
    steelyard_run(arena);
    fwrite(arena + STEELYARD_OUTPUT_OFFSET, 1, STEELYARD_OUTPUT_SIZE, stdout);
  }
  return 0;
}
