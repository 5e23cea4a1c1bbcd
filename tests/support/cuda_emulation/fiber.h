// A function running on a stack of its own, which can stop anywhere and go on later.
#pragma once

#if !defined(__x86_64__) && !defined(STEELYARD_EMULATION_UCONTEXT)
#define STEELYARD_EMULATION_UCONTEXT
#endif
#ifdef STEELYARD_EMULATION_UCONTEXT
#include <ucontext.h>
#endif

#include <cstddef>

namespace steelyard::emulation {

#ifdef STEELYARD_EMULATION_UCONTEXT
using Context = ucontext_t;
#else
using Context = void*;  // the stack pointer; everything else lies on the stack
#endif

// Fibers live as long as the process: their stacks are used again, never given back.
class Fiber {
 public:
  // entry must never return; it starts at the first resume().
  explicit Fiber(void (*entry)());
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Called from no fiber: runs this one until it suspends itself.
  void resume();
  // Called from within a fiber: goes back to its resume().
  static void suspend();
  // The fiber that is running, or null.
  static Fiber* active();

 private:
  [[noreturn]] static void start();

  void (*entry_)();
  std::byte* stack_;
  Context context_;
  void* sanitizer_state_ = nullptr;
};

}  // namespace steelyard::emulation
