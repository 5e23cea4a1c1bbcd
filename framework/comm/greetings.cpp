#include "steelyard/framework/comm/greetings.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <list>
#include <stdexcept>
#include <thread>
#include <vector>

namespace steelyard::comm {
namespace {

// More visitors than this at once are no ranks: the one that is silent for longest leaves.
constexpr std::size_t kMostVisitors = 64;
// Accepted before the ones that are here are read: a rank's greeting comes with its connection.
constexpr int kAcceptedAtOnce = 16;

std::array<unsigned char, 32> proof_of(const Secret& secret, int from, int to) {
  const std::string text =
      "steelyard: rank " + std::to_string(from) + " greets rank " + std::to_string(to);
  std::array<unsigned char, 32> proof{};
  unsigned int size = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), bytes, text.size(),
           proof.data(), &size) == nullptr ||
      size != proof.size()) {
    throw std::runtime_error("OpenSSL refused HMAC-SHA-256");
  }
  return proof;
}

// A connection whose greeting has not come whole.
struct Visitor {
  Socket connection;
  SocketClock::time_point deadline;
  std::array<char, sizeof(Greeting)> bytes{};
  std::size_t received = 0;
};

class Admission {
 public:
  Admission(const Socket& listener, const Secret& secret, int own, std::set<int> awaited,
            const std::function<void(const std::string&)>& note)
      : listener_(listener),
        secret_(secret),
        own_(own),
        awaited_(std::move(awaited)),
        note_(note) {}

  std::map<int, Socket> run(SocketClock::time_point deadline) {
    while (!awaited_.empty() && SocketClock::now() < deadline) {
      wait(deadline);
      accept_some();
      for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
        visitor = hear(*visitor) ? std::next(visitor) : visitors_.erase(visitor);
      }
    }
    return std::move(admitted_);
  }

 private:
  void wait(SocketClock::time_point until) const {
    std::vector<pollfd> events{{listener_.get(), POLLIN, 0}};
    for (const Visitor& visitor : visitors_) {
      events.push_back({visitor.connection.get(), POLLIN, 0});
      until = std::min(until, visitor.deadline);
    }
    poll(events.data(), events.size(), milliseconds_until(until));
  }

  void accept_some() {
    for (int i = 0; i < kAcceptedAtOnce; ++i) {
      Socket connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!connection) {
        const bool none = errno == EAGAIN || errno == EWOULDBLOCK;
        // Out of file descriptors, say: until a visitor leaves.
        if (!none) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        return;
      }
      visitors_.push_back({std::move(connection), SocketClock::now() + kGreetingTime});
      if (visitors_.size() <= kMostVisitors) continue;
      refuse(visitors_.front(),
             "it was silent while " + std::to_string(kMostVisitors) + " others connected");
      visitors_.pop_front();
    }
  }

  // Whether more is to come from the visitor.
  bool hear(Visitor& visitor) {
    const ssize_t got = recv(visitor.connection.get(), visitor.bytes.data() + visitor.received,
                             visitor.bytes.size() - visitor.received, MSG_DONTWAIT);
    if (got > 0) visitor.received += static_cast<std::size_t>(got);
    if (visitor.received == visitor.bytes.size()) {
      judge(visitor);
      return false;
    }
    const bool ended =
        got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
    if (!ended && SocketClock::now() < visitor.deadline) return true;
    refuse(visitor,
           "it sent " + std::to_string(visitor.received) + " of the " +
               std::to_string(visitor.bytes.size()) + " bytes of a greeting" +
               (ended ? " and ended" : " in " + std::to_string(kGreetingTime.count()) + " s"));
    return false;
  }

  void judge(Visitor& visitor) {
    Greeting greeting;
    std::memcpy(&greeting, visitor.bytes.data(), sizeof greeting);
    if (!is_of_run(greeting, secret_)) return refuse(visitor, "it does not know the run's secret");
    // A rank of this run that looks for another one at an address that both have tries its next.
    if (greeting.to != own_ || awaited_.count(greeting.from) == 0) return;
    const Greeting answer = make_greeting(secret_, own_, greeting.from);
    if (!send_all(visitor.connection, &answer, sizeof answer)) return;
    awaited_.erase(greeting.from);
    admitted_[greeting.from] = std::move(visitor.connection);
  }

  void refuse(const Visitor& visitor, const std::string& reason) {
    if (has_noted_) return;
    has_noted_ = true;
    note_("a connection from " + peer_of(visitor.connection) +
          " that is not of this run was closed: " + reason + "; others are closed without a note");
  }

  const Socket& listener_;
  const Secret& secret_;
  const int own_;
  std::set<int> awaited_;
  const std::function<void(const std::string&)>& note_;
  std::list<Visitor> visitors_;
  std::map<int, Socket> admitted_;
  bool has_noted_ = false;
};

}  // namespace

Secret new_secret() {
  Secret secret{};
  if (getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    throw std::runtime_error(std::string("cannot read random bytes: ") + strerror(errno));
  }
  return secret;
}

Greeting make_greeting(const Secret& secret, int from, int to) {
  return {from, to, proof_of(secret, from, to)};
}

bool is_of_run(const Greeting& greeting, const Secret& secret) {
  const auto expected = proof_of(secret, greeting.from, greeting.to);
  return CRYPTO_memcmp(expected.data(), greeting.proof.data(), expected.size()) == 0;
}

bool greet_rank(const Socket& connection, const Secret& secret, int own, int rank,
                SocketClock::time_point deadline) {
  const Greeting greeting = make_greeting(secret, own, rank);
  Greeting answer;
  return send_all(connection, &greeting, sizeof greeting) &&
         receive_all(connection, &answer, sizeof answer, deadline) && answer.from == rank &&
         answer.to == own && is_of_run(answer, secret);
}

std::map<int, Socket> admit_ranks(const Socket& listener, const Secret& secret, int own,
                                  std::set<int> awaited, SocketClock::time_point deadline,
                                  const std::function<void(const std::string&)>& note) {
  return Admission(listener, secret, own, std::move(awaited), note).run(deadline);
}

}  // namespace steelyard::comm
