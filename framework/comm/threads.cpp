#include "steelyard/framework/comm/threads.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace steelyard::comm {
namespace {

// What is under way to one rank.
class Mailbox {
 public:
  explicit Mailbox(int ranks) : senders_(static_cast<std::size_t>(ranks)) {}

  void put(int from, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    senders_[from].messages.emplace_back(bytes.begin(), bytes.end());
    changed_.notify_one();
  }
  // Nothing more comes from this rank.
  void close(int from) {
    const std::lock_guard lock(mutex_);
    senders_[from].left = true;
    changed_.notify_one();
  }
  void interrupt() {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
    changed_.notify_one();
  }
  std::vector<std::byte> take(int from) {
    std::unique_lock lock(mutex_);
    Sender& sender = senders_[from];
    changed_.wait(lock, [&] { return interrupted_ || sender.left || !sender.messages.empty(); });
    if (interrupted_) throw RankLost("this rank leaves");
    if (sender.messages.empty()) throw RankLost("rank " + std::to_string(from) + " has left");
    std::vector<std::byte> message = std::move(sender.messages.front());
    sender.messages.pop_front();
    return message;
  }

 private:
  struct Sender {
    std::deque<std::vector<std::byte>> messages;
    bool left = false;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Sender> senders_;
  bool interrupted_ = false;
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(std::deque<Mailbox>& boxes, int rank) : boxes_(boxes), rank_(rank) {}
  ~ThreadTransport() override {
    for (Mailbox& box : boxes_) box.close(rank_);
  }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(boxes_.size()); }
  void interrupt() override { boxes_[rank_].interrupt(); }
  void exchange(int peer, std::span<const std::byte> send, std::span<std::byte> receive) override {
    if (!send.empty()) boxes_[peer].put(rank_, send);
    if (receive.empty()) return;
    const std::vector<std::byte> message = boxes_[rank_].take(peer);
    if (message.size() != receive.size()) {
      throw std::logic_error("rank " + std::to_string(rank_) + " expected " +
                             std::to_string(receive.size()) + " bytes from rank " +
                             std::to_string(peer) + ", got " + std::to_string(message.size()));
    }
    std::copy(message.begin(), message.end(), receive.begin());
  }

 private:
  std::deque<Mailbox>& boxes_;
  const int rank_;
};

}  // namespace

void run_as_ranks(int ranks, const std::function<void(Communicator&)>& body,
                  std::size_t piece_bytes) {
  std::deque<Mailbox> boxes;
  for (int rank = 0; rank < ranks; ++rank) boxes.emplace_back(ranks);
  std::mutex mutex;
  std::exception_ptr first;
  const auto remember = [&] {
    const std::lock_guard lock(mutex);
    if (!first) first = std::current_exception();
  };
  const auto run_rank = [&](int rank) {
    try {
      const auto connect = [&boxes, rank] {
        return std::make_unique<ThreadTransport>(boxes, rank);
      };
      Communicator communicator(connect, piece_bytes);
      try {
        body(communicator);
      } catch (...) {
        remember();  // before the others lose this rank
      }
    } catch (...) {
      remember();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace steelyard::comm
