/* Prints how many instructions a run of the program of a model takes on an emulated board whose
   clock counts instructions (QEMU's -icount). */
#include <stdio.h>

#include "model.h"

#if defined(__riscv)
static void start(void) {}

static uint32_t now(void) {
  uint32_t count;
  __asm__ volatile("rdinstret %0" : "=r"(count));
  return count;
}
#else
/* The timer that all of these processors have. It counts down, in ticks of some instructions. */
#define CONTROL (*(volatile uint32_t *)0xE000E010U)
#define RELOAD (*(volatile uint32_t *)0xE000E014U)
#define VALUE (*(volatile uint32_t *)0xE000E018U)

static void start(void) {
  RELOAD = 0xFFFFFFU;
  VALUE = 0U;
  CONTROL = 5U; /* runs by the processor's clock, without interrupts */
  while (VALUE == 0U) { /* not loaded yet */
  }
}

static uint32_t now(void) { return 0xFFFFFFU - VALUE; }
#endif

static int8_t arena[STEELYARD_ARENA_BYTES];

/* A million instructions. */
static void known(void) {
  uint32_t rounds = 500000U;
#if defined(__riscv)
  __asm__ volatile("1: addi %0, %0, -1\n\tbnez %0, 1b" : "+r"(rounds));
#else
  __asm__ volatile(".syntax unified\n1: subs %0, #1\n\tbne 1b" : "+l"(rounds) : : "cc");
#endif
}

int main(void) {
  uint32_t first;
  uint32_t million;
  uint32_t run;
  start();
  first = now();
  known();
  million = now() - first;
  first = now();
  steelyard_run(arena);
  run = now() - first;
  printf("%ld thousand instructions\n", (long)((1000U * (uint64_t)run) / million));
  return 0;
}
