// Connections between the ranks that exchange messages, over which they watch one another.
//
// MPI's interface cannot say that a process has ended, so each rank also has a TCP connection to
// each rank with which the collectives exchange messages: those whose numbers differ in one bit,
// log2(N) of them. The end of a process ends its connections at once, whatever ended it; and a link
// that is down between two ranks is noticed by them. Addresses are told over the communicator.
#pragma once

#include <string>
#include <vector>

#include "steelyard/framework/comm/communicator.h"

namespace steelyard::comm {

struct Neighbour {
  int rank = 0;
  std::string host;
  int process = 0;
  int socket = -1;  // not blocking
};

std::string host_name();

// The number of this rank among those on its machine, from 0; in containers with networks of their
// own, among those in its container. Called by all ranks.
int rank_on_machine(Communicator& ranks);

// Called by all ranks. When one of them cannot be reached, every rank throws std::runtime_error
// with the ranks, hosts and addresses in question.
std::vector<Neighbour> connect_neighbours(Communicator& ranks);

}  // namespace steelyard::comm
