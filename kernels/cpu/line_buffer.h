// Memory of a thread, which steps of training ask for again and again.
#pragma once

#include <cstddef>
#include <cstdint>
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
  KeptVector() {
    if (spare().empty()) return;
    values_ = std::move(spare().back());
    spare().pop_back();
  }
  ~KeptVector() { spare().push_back(std::move(values_)); }
  KeptVector(const KeptVector&) = delete;
  KeptVector& operator=(const KeptVector&) = delete;

  void assign(std::size_t size, T value) { values_.assign(size, value); }
  std::size_t size() const { return values_.size(); }
  T* data() { return values_.data(); }
  const T* data() const { return values_.data(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  T& operator[](std::int64_t i) { return values_[static_cast<std::size_t>(i)]; }
  const T& operator[](std::int64_t i) const { return values_[static_cast<std::size_t>(i)]; }

 private:
  static std::vector<std::vector<T>>& spare() {
    thread_local std::vector<std::vector<T>> vectors;
    return vectors;
  }

  std::vector<T> values_;
};

}  // namespace steelyard::kernels
