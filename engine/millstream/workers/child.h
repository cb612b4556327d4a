#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "millstream/workers/descriptor.h"
#include "millstream/workers/message.h"

namespace millstream {

/// How a worker process is started.
struct Launch {
  std::vector<std::string> command;      // the program and its arguments
  std::vector<std::string> environment;  // "NAME=value"
  std::string setup;                     // the first message to each worker
};

/// A worker process, seen from its parent. It is spawned, not forked. It has its own
/// process group, so that Ctrl-C in a terminal does not reach it. Not thread-safe.
class Child {
 public:
  /// Starts the process. `memory` is the file descriptor of the shared memory. Throws
  /// `IoError` if the process cannot be started.
  Child(const Launch& launch, int memory);
  /// Kills the process if it is still running.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const noexcept { return pid_; }
  int socket() const noexcept { return socket_.number(); }
  /// Readable once the process has exited.
  int exit_descriptor() const noexcept { return exit_.number(); }

  /// Queues a message and sends as much as the socket accepts. Does not block.
  /// `send_more` sends the rest.
  void send(std::string message);
  bool sending() const noexcept { return sent_ < unsent_.size(); }
  void send_more() noexcept;

  /// Receives the next complete message. Returns false if there is none yet. Throws
  /// `DataError` if the bytes are not a message.
  bool receive(MessageKind& kind, std::string& body);
  /// Whether the process has closed its end of the socket, so that no more messages
  /// arrive.
  bool disconnected() const noexcept { return disconnected_; }

  /// Asks the process for the stacks of its threads and waits briefly for them.
  std::string stack();

  /// Closes the connection. An idle worker process then exits by itself.
  void disconnect() noexcept;
  void kill() noexcept;
  /// Waits until the process has exited and returns how, e.g. "was killed by signal 9
  /// (Killed)".
  std::string exit_reason();

 private:
  void signal(int number) noexcept;
  void reap() noexcept;

  pid_t pid_ = -1;
  Descriptor socket_;
  Descriptor exit_;
  Descriptor stack_;
  std::string unsent_;
  std::size_t sent_ = 0;  // bytes of `unsent_`
  std::string received_;
  bool disconnected_ = false;
  bool reaped_ = false;
  bool known_ = false;  // `status_` is valid
  int status_ = 0;
};

}  // namespace millstream
