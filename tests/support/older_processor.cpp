// A preloaded library under which a program takes this processor for one with AVX2 and without
// AVX-512 and AMX, so that it can be tested and timed on the kernels that it chooses there:
//
//   c++ -O2 -shared -fPIC -o older_processor.so older_processor.cpp
//   LD_PRELOAD=$PWD/older_processor.so PROGRAM
//
// VNNI is gone, too, unless OLDER_PROCESSOR is avx-vnni: then the processor is as Alder Lake.
//
// Linux raises SIGSEGV for the instruction CPUID where a process asks for it (arch_prctl(2),
// ARCH_SET_CPUID), on processors whose flags in /proc/cpuinfo have cpuid_fault. The handler runs
// the instruction and takes bits out of its answer (Intel's manual, volume 2A, CPUID, leaf 7). What
// else raises SIGSEGV ends the program as before.
#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>

namespace {

bool keeps_avx_vnni = false;

bool allow_cpuid(int allowed) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, allowed) == 0; }

void take(unsigned& word, std::initializer_list<int> bits) {
  for (const int bit : bits) word &= ~(1U << bit);
}

void answer(int signal_number, siginfo_t*, void* context) {
  greg_t* const r = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  constexpr unsigned char kCpuid[] = {0x0F, 0xA2};
  if (std::memcmp(reinterpret_cast<const void*>(r[REG_RIP]), kCpuid, sizeof kCpuid) != 0) {
    std::signal(signal_number, SIG_DFL);  // the instruction is tried again
    return;
  }
  const auto leaf = static_cast<unsigned>(r[REG_RAX]), part = static_cast<unsigned>(r[REG_RCX]);
  unsigned a = 0, b = 0, c = 0, d = 0;
  allow_cpuid(1);
  __cpuid_count(leaf, part, a, b, c, d);
  allow_cpuid(0);
  if (leaf == 7 && part == 0) {
    take(b, {16, 17, 21, 26, 27, 28, 30, 31});  // AVX-512 F, DQ, IFMA, PF, ER, CD, BW, VL
    take(c, {1, 6, 11, 12, 14});                // VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ
    take(d, {2, 3, 8, 22, 23, 24, 25});         // 4VNNIW, 4FMAPS, VP2INTERSECT, AMX, FP16
  } else if (leaf == 7 && part == 1) {
    take(a, {5, 21});  // AVX512-BF16, AMX-FP16
    if (!keeps_avx_vnni) take(a, {4});
    take(d, {4, 10, 19});  // AVX-VNNI-INT8, AVX-VNNI-INT16, AVX10
  }
  r[REG_RAX] = a;
  r[REG_RBX] = b;
  r[REG_RCX] = c;
  r[REG_RDX] = d;
  r[REG_RIP] += sizeof kCpuid;
}

[[gnu::constructor]] void begin() {
  const char* const kept = std::getenv("OLDER_PROCESSOR");
  keeps_avx_vnni = kept != nullptr && std::string_view(kept) == "avx-vnni";
  struct sigaction action = {};
  action.sa_sigaction = answer;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (sigaction(SIGSEGV, &action, nullptr) == 0 && allow_cpuid(0)) return;
  std::perror("older_processor: CPUID does not fault here");
  std::exit(1);
}

}  // namespace
