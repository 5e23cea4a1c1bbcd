// How two ranks that connect know that both are of one run.
//
// Rank 0 draws a secret, which the others get over MPI. The rank that connects sends a greeting and
// gets one back. A greeting proves that its sender has the secret, by HMAC-SHA-256 (RFC 2104) of
// the numbers of both ranks, and does not contain it: a greeting that reaches another program,
// since several hosts may have one address, teaches it nothing that any rank would accept.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "steelyard/framework/comm/sockets.h"

namespace steelyard::comm {

using Secret = std::array<unsigned char, 32>;

// From the system's generator of random bytes.
Secret new_secret();

// How long a rank waits for the other's greeting.
inline constexpr std::chrono::seconds kGreetingTime{3};

struct Greeting {
  int from = 0, to = 0;
  std::array<unsigned char, 32> proof{};
};

Greeting make_greeting(const Secret& secret, int from, int to);
// Compares in a time that does not depend on the proof.
bool is_of_run(const Greeting& greeting, const Secret& secret);

// Greets a rank over a new connection; false where no greeting of that rank comes back in time.
bool greet_rank(const Socket& connection, const Secret& secret, int own, int rank,
                SocketClock::time_point deadline);

// Accepts connections until each rank of `awaited` has greeted this one, or until the deadline, and
// returns those of the ranks that have, after answering. All connections are read side by side.
// Connections that do not greet in time, or not with this run's secret, are closed, and `note` is
// called with the first of them.
std::map<int, Socket> admit_ranks(const Socket& listener, const Secret& secret, int own,
                                  std::set<int> awaited, SocketClock::time_point deadline,
                                  const std::function<void(const std::string&)>& note);

}  // namespace steelyard::comm
