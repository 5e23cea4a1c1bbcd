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

// What is under way between all ranks.
class Mail {
 public:
  explicit Mail(int ranks)
      : ranks_(ranks), messages_(static_cast<std::size_t>(ranks * ranks)), left_(ranks) {}

  int ranks() const { return ranks_; }

  void send(int from, int to, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    queue(from, to).emplace_back(bytes.begin(), bytes.end());
    changed_.notify_all();
  }

  void receive(int from, int to, std::span<std::byte> bytes) {
    std::unique_lock lock(mutex_);
    auto& messages = queue(from, to);
    changed_.wait(lock, [&] { return !messages.empty() || left_[from]; });
    if (messages.empty()) throw RankLost("rank " + std::to_string(from) + " has left");
    const auto message = std::move(messages.front());
    messages.pop_front();
    if (message.size() != bytes.size()) {
      throw std::logic_error("rank " + std::to_string(to) + " expected " +
                             std::to_string(bytes.size()) + " bytes from rank " +
                             std::to_string(from) + ", got " + std::to_string(message.size()));
    }
    std::copy(message.begin(), message.end(), bytes.begin());
  }

  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    left_[rank] = true;
    changed_.notify_all();
  }

 private:
  std::deque<std::vector<std::byte>>& queue(int from, int to) {
    return messages_[static_cast<std::size_t>(from * ranks_ + to)];
  }

  const int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<std::vector<std::byte>>> messages_;
  std::vector<char> left_;
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(Mail& mail, int rank) : mail_(mail), rank_(rank) {}
  ~ThreadTransport() override { mail_.leave(rank_); }
  int rank() const override { return rank_; }
  int size() const override { return mail_.ranks(); }
  void exchange(int peer, std::span<const std::byte> send, std::span<std::byte> receive) override {
    if (!send.empty()) mail_.send(rank_, peer, send);
    if (!receive.empty()) mail_.receive(peer, rank_, receive);
  }

 private:
  Mail& mail_;
  const int rank_;
};

}  // namespace

void run_as_ranks(int ranks, const std::function<void(Communicator&)>& body,
                  std::size_t piece_bytes) {
  Mail mail(ranks);
  std::mutex mutex;
  std::exception_ptr first;
  const auto remember = [&] {
    const std::lock_guard lock(mutex);
    if (!first) first = std::current_exception();
  };
  const auto run_rank = [&](int rank) {
    try {
      const auto connect = [&mail, rank] { return std::make_unique<ThreadTransport>(mail, rank); };
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
