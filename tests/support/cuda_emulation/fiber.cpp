// Stacks with a guard page, and switching between them: a few instructions on x86-64, because
// glibc's swapcontext costs a system call each time; swapcontext elsewhere.
#include "tests/support/cuda_emulation/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#include "tests/support/cuda_emulation/sanitizer.h"

#ifndef STEELYARD_EMULATION_UCONTEXT
// Pushes the registers that a call keeps, stores the stack pointer in *saved, takes the other one.
extern "C" void steelyard_emulation_switch(void** saved, void* target);
asm(R"(
.pushsection .text
.globl steelyard_emulation_switch
.type steelyard_emulation_switch, @function
steelyard_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size steelyard_emulation_switch, . - steelyard_emulation_switch
.popsection
)");
#endif

namespace steelyard::emulation {
namespace {

constexpr std::size_t kStackBytes = 128 * 1024;

// The stack that resume() was called on.
struct Caller {
  Context context;
  const void* stack = nullptr;
  std::size_t stack_bytes = 0;
};
Caller caller;
Fiber* active_fiber = nullptr;

std::byte* allocate_stack() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  if (mprotect(memory, page, PROT_NONE) != 0) throw std::bad_alloc();
  return static_cast<std::byte*>(memory) + page;
}

#ifdef STEELYARD_EMULATION_UCONTEXT
void prepare(Context& context, std::byte* stack, void (*start)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, start, 0);
}

void switch_context(Context& from, Context& to) { swapcontext(&from, &to); }
#else
void prepare(Context& context, std::byte* stack, void (*start)()) {
  auto* top = reinterpret_cast<std::uintptr_t*>(stack + kStackBytes);
  *--top = 0;  // where start() would return to, with the stack aligned as after a call
  *--top = reinterpret_cast<std::uintptr_t>(start);
  for (int i = 0; i < 6; ++i) *--top = 0;  // the registers
  context = top;
}

void switch_context(Context& from, Context& to) { steelyard_emulation_switch(&from, to); }
#endif

}  // namespace

Fiber::Fiber(void (*entry)()) : entry_(entry), stack_(allocate_stack()) {
  prepare(context_, stack_, &Fiber::start);
}

Fiber* Fiber::active() { return active_fiber; }

void Fiber::start() {
  enter_stack(nullptr, &caller.stack, &caller.stack_bytes);
  active_fiber->entry_();
  std::abort();
}

void Fiber::resume() {
  active_fiber = this;
  void* sanitizer_state = nullptr;
  leave_stack(&sanitizer_state, stack_, kStackBytes);
  switch_context(caller.context, context_);
  enter_stack(sanitizer_state, nullptr, nullptr);
  active_fiber = nullptr;
}

void Fiber::suspend() {
  Fiber& self = *active_fiber;
  leave_stack(&self.sanitizer_state_, caller.stack, caller.stack_bytes);
  switch_context(self.context_, caller.context);
  enter_stack(self.sanitizer_state_, &caller.stack, &caller.stack_bytes);
}

}  // namespace steelyard::emulation
