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
  std::string setup;                     // what each worker is told first
};

/// A worker process as its parent sees it: spawned, never forked, in a process group of
/// its own so that a terminal's Ctrl-C does not reach it. Belongs to one thread.
class Child {
 public:
  /// Throws `IoError` where it cannot be started. `memory` is shared with it.
  Child(const Launch& launch, int memory);
  /// Kills it if it still runs.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const noexcept { return pid_; }
  int socket() const noexcept { return socket_.number(); }
  /// Readable once the process has ended.
  int ended() const noexcept { return ended_.number(); }

  /// Sends, now or when there is room: never waits.
  void send(std::string message);
  bool sending() const noexcept { return sent_ < unsent_.size(); }
  void send_more() noexcept;

  /// The next whole message that has come; false if there is none yet. Throws
  /// `DataError` where what came is no message.
  bool receive(Kind& kind, std::string& body);
  /// Whether its side of the socket is closed: nothing more will come.
  bool gone() const noexcept { return gone_; }

  /// Asks where it is and waits a moment for its words.
  std::string whereabouts();

  /// No more tasks: an idle worker ends by itself.
  void hang_up() noexcept;
  void kill() noexcept;
  /// Waits for the end and says how it came, e.g. "was killed by signal 9 (Killed)".
  std::string epitaph();

 private:
  void signal(int number) noexcept;
  void reap() noexcept;

  pid_t pid_ = -1;
  Descriptor socket_;
  Descriptor ended_;
  Descriptor words_;
  std::string unsent_;
  std::size_t sent_ = 0;  // of it
  std::string received_;
  bool gone_ = false;
  bool reaped_ = false;
  bool known_ = false;  // how it ended
  int status_ = 0;
};

}  // namespace millstream
