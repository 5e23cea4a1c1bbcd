/* Runs the C program of a model on samples of codes, or on the frames of a sequence: from stdin to
   stdout, one call after another. */
#include <stdio.h>

#include "model.h"

static int8_t arena[STEELYARD_ARENA_BYTES];

int main(void) {
#ifdef STEELYARD_STATE_BYTES
  steelyard_reset(arena);
#endif
  while (fread(arena + STEELYARD_INPUT_OFFSET, 1, STEELYARD_INPUT_SIZE, stdin) ==
         STEELYARD_INPUT_SIZE) {
    steelyard_run(arena);
    fwrite(arena + STEELYARD_OUTPUT_OFFSET, 1, STEELYARD_OUTPUT_SIZE, stdout);
  }
  return 0;
}
