// The interface of a backend: messages between two ranks. Every collective is implemented once, on
// top of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

namespace steelyard::comm {

// Another rank has left; whatever was awaited from it will not come.
class RankLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The end of one rank. Made, used and destroyed by one thread, interrupted by any.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Sends to another rank and receives from it, both at once, and returns when both are done. Both
  // ranks know both sizes, each at most 2^30 bytes; in an empty direction nothing is sent. Throws
  // RankLost.
  virtual void exchange(int peer, std::span<const std::byte> send,
                        std::span<std::byte> receive) = 0;

  // Memory where messages lie, the host's unless a backend says otherwise: two blocks, 0 and 1,
  // each of which stays what it is until more is asked of it.
  virtual std::byte* scratch(int which, std::size_t bytes) {
    std::vector<std::byte>& memory = scratch_[static_cast<std::size_t>(which)];
    if (memory.size() < bytes) memory.resize(bytes);
    return memory.data();
  }
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  // Called by another thread: an exchange that is under way, and every later one, throws RankLost.
  virtual void interrupt() = 0;
  // Called once, by every rank, when no message is under way or will follow. Destroyed without it,
  // a transport leaves and waits for nobody.
  virtual void finish() {}

 private:
  std::array<std::vector<std::byte>, 2> scratch_;
};

}  // namespace steelyard::comm
