// AddressSanitizer's calls for stacks and memory of one's own; they do nothing in other builds.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define STEELYARD_EMULATION_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STEELYARD_EMULATION_ASAN 1
#endif
#endif

#ifdef STEELYARD_EMULATION_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace steelyard::emulation {

#ifdef STEELYARD_EMULATION_ASAN
inline constexpr bool kAddressSanitizer = true;
inline void leave_stack(void** saved, const void* next_stack, std::size_t size) {
  __sanitizer_start_switch_fiber(saved, next_stack, size);
}
inline void enter_stack(void* saved, const void** previous_stack, std::size_t* size) {
  __sanitizer_finish_switch_fiber(saved, previous_stack, size);
}
inline void forbid_access(const void* begin, std::size_t bytes) {
  __asan_poison_memory_region(begin, bytes);
}
inline void allow_access(const void* begin, std::size_t bytes) {
  __asan_unpoison_memory_region(begin, bytes);
}
#else
inline constexpr bool kAddressSanitizer = false;
inline void leave_stack(void**, const void*, std::size_t) {}
inline void enter_stack(void*, const void**, std::size_t*) {}
inline void forbid_access(const void*, std::size_t) {}
inline void allow_access(const void*, std::size_t) {}
#endif

}  // namespace steelyard::emulation
