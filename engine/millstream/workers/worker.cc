#include "millstream/workers/worker.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace millstream {
namespace {

/// Kills this process when the parent has exited. Runs on its own thread, because the
/// user's function may never return.
void watch(int parent) {
  pollfd waited{parent, POLLIN, 0};
  while (poll(&waited, 1, -1) < 0 && errno == EINTR) {
  }
  kill(getpid(), SIGKILL);
}

}  // namespace

int stack_signal() noexcept { return SIGUSR2; }

Worker::Worker(std::int64_t parent)
    : blocks_(kWorkerMemory), row_cells_(kWorkerMemory) {
  const auto process = static_cast<pid_t>(parent);
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (descriptor < 0 || getppid() != process) _exit(1);
  std::thread(watch, descriptor).detach();

  MessageKind kind;
  std::string body;
  if (!receive(kWorkerSocket, kind, body) || kind != MessageKind::kSetup) _exit(0);
  MessageReader reader(body);
  const auto cell = reader.value<SharedLocation>();
  row_ = reinterpret_cast<std::atomic<std::int64_t>*>(row_cells_.at(cell));
  setup_ = std::string(reader.rest());
}

void Worker::ready() { send_all(kWorkerSocket, framed(MessageKind::kReady, {})); }

bool Worker::next() {
  MessageKind kind;
  if (!receive(kWorkerSocket, kind, body_) || kind != MessageKind::kTask) return false;
  task_ = decoded_task(body_);
  row_->store(0);
  return true;
}

void Worker::done(std::span<const std::string> host_values) {
  send_all(kWorkerSocket, framed(MessageKind::kDone, encoded(host_values)));
}

void Worker::failed(const Failure& failure) {
  send_all(kWorkerSocket, framed(MessageKind::kFailed, encoded(failure)));
}

}  // namespace millstream
