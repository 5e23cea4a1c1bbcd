// Work that stays on a GPU's compute stream until the host lets it pass: what waits for the stream
// in the meantime shows.
#pragma once

#include <atomic>
#include <memory>

#include "steelyard/framework/tensor/device.h"

namespace steelyard::testing {

class HeldQueue {
 public:
  // Queues the work; gives up holding after 10 s.
  explicit HeldQueue(Device device);
  // Lets it pass, and waits until it did.
  ~HeldQueue();
  HeldQueue(const HeldQueue&) = delete;
  HeldQueue& operator=(const HeldQueue&) = delete;

  bool passed() const { return passed_; }
  // On the device's side.
  void hold();

 private:
  Device device_;
  std::atomic<bool> released_ = false;
  std::atomic<bool> passed_ = false;
  std::shared_ptr<void> emulation_;
};

}  // namespace steelyard::testing
