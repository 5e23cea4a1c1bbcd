// A preloaded library under which programs take this processor for one with AVX2 and without AVX-512, VNNI and AMX, so that
// they can be timed on the kernels that they choose there:
//
//   cc -O2 -shared -fPIC -o older_processor.so older_processor.c
//   LD_PRELOAD=$PWD/older_processor.so PROGRAM
//
// With OLDER_PROCESSOR=avx-vnni it keeps AVX-VNNI, as Alder Lake has it.
//
// Linux raises SIGSEGV for the instruction CPUID where a process asks for it (arch_prctl(2), ARCH_SET_CPUID), on processors
// whose flags in /proc/cpuinfo have cpuid_fault. The handler runs the instruction and takes bits out of its answer (Intel's
// manual, volume 2A, CPUID, leaf 7). What else raises SIGSEGV ends the program as before.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static int allow_cpuid(int allowed) { return (int)syscall(SYS_arch_prctl, ARCH_SET_CPUID, allowed); }

static int keeps_avx_vnni;

static unsigned without(unsigned word, const int* bits) {
  for (; *bits >= 0; ++bits) word &= ~(1U << *bits);
  return word;
}

static void answer(int signal_number, siginfo_t* info, void* context) {
  (void)info;
  greg_t* const r = ((ucontext_t*)context)->uc_mcontext.gregs;
  static const unsigned char kCpuid[2] = {0x0F, 0xA2};
  if (memcmp((const void*)r[REG_RIP], kCpuid, sizeof kCpuid) != 0) {
    signal(signal_number, SIG_DFL);  // the instruction is tried again
    return;
  }
  const unsigned leaf = (unsigned)r[REG_RAX], part = (unsigned)r[REG_RCX];
  unsigned a = 0, b = 0, c = 0, d = 0;
  allow_cpuid(1);
  __cpuid_count(leaf, part, a, b, c, d);
  allow_cpuid(0);
  if (leaf == 7 && part == 0) {
    // F, DQ, IFMA, PF, ER, CD, BW, VL; VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ; 4VNNIW, 4FMAPS,
    // VP2INTERSECT, AMX-BF16, FP16, AMX-TILE, AMX-INT8
    b = without(b, (const int[]){16, 17, 21, 26, 27, 28, 30, 31, -1});
    c = without(c, (const int[]){1, 6, 11, 12, 14, -1});
    d = without(d, (const int[]){2, 3, 8, 22, 23, 24, 25, -1});
  } else if (leaf == 7 && part == 1) {
    a = without(a, (const int[]){5, 21, -1});      // AVX512-BF16, AMX-FP16
    if (!keeps_avx_vnni) a = without(a, (const int[]){4, -1});
    d = without(d, (const int[]){4, 10, 19, -1});  // AVX-VNNI-INT8, AVX-VNNI-INT16, AVX10
  }
  r[REG_RAX] = a;
  r[REG_RBX] = b;
  r[REG_RCX] = c;
  r[REG_RDX] = d;
  r[REG_RIP] += (greg_t)sizeof kCpuid;
}

__attribute__((constructor)) static void begin(void) {
  const char* const kept = getenv("OLDER_PROCESSOR");
  keeps_avx_vnni = kept != NULL && strcmp(kept, "avx-vnni") == 0;
  const struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
  if (sigaction(SIGSEGV, &action, NULL) == 0 && allow_cpuid(0) == 0) return;
  perror("older_processor: this processor or kernel cannot fault CPUID");
  exit(1);
}
