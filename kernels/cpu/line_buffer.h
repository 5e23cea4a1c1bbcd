// Memory of a thread, which steps of training ask for again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "steelyard/kernels/cpu/stream.h"

namespace steelyard::kernels {

// `size` elements that begin with a line of the cache, contents undefined: the calling thread's,
// valid until it asks for the same slot and type again.
template <typename T, int kSlot>
T* line_buffer(std::int64_t size) {
  constexpr std::int64_t kLine = kCacheLine / sizeof(T);
  thread_local std::vector<T> kept;
  if (std::ssize(kept) < size + kLine) kept.resize(static_cast<std::size_t>(size + kLine));
  return kept.data() + elements_before_line(kept.data());
}

// A vector whose memory comes from vectors that the thread no longer needs: what is freed at the
// end of the heap goes back to the system, and its pages cost a fault each the next time.
template <typename T>
class KeptVector {
 public:
  KeptVector() : values_(taken()) {}
  [[gnu::noinline]] KeptVector(std::size_t size, T value) : KeptVector() { assign(size, value); }
  ~KeptVector() { keep(values_); }
  KeptVector(KeptVector&& other) noexcept : values_(std::exchange(other.values_, {})) {}
  KeptVector& operator=(KeptVector&& other) noexcept {
    std::swap(values_, other.values_);
    return *this;
  }
  KeptVector(const KeptVector&) = delete;
  KeptVector& operator=(const KeptVector&) = delete;

  void assign(std::size_t size, T value) { values_.assign(size, value); }
  void push_back(T value) { values_.push_back(value); }
  std::size_t size() const { return values_.size(); }
  T* data() { return values_.data(); }
  const T* data() const { return values_.data(); }
  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  T& operator[](std::int64_t i) { return values_[static_cast<std::size_t>(i)]; }
  const T& operator[](std::int64_t i) const { return values_[static_cast<std::size_t>(i)]; }

 private:
  static std::vector<std::vector<T>>& spare() {
    thread_local std::vector<std::vector<T>> vectors;
    return vectors;
  }
  // One copy of each for the many kernels that have such vectors.
  [[gnu::noinline]] static std::vector<T> taken() {
    std::vector<T> values;
    if (spare().empty()) return values;
    values = std::move(spare().back());
    spare().pop_back();
    values.clear();
    return values;
  }
  [[gnu::noinline]] static void keep(std::vector<T>& values) noexcept {
    if (values.capacity() == 0) return;
    try {
      spare().push_back(std::move(values));
    } catch (const std::bad_alloc&) {
      // No place to keep it: the vector frees its memory itself.
    }
  }

  std::vector<T> values_;
};

}  // namespace steelyard::kernels
