#include "millstream/workers/worker.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace millstream {
namespace {

/// Ends this process when the parent has ended: its own thread, since the function may
/// be busy for ever.
void watch(int parent) {
  pollfd waited{parent, POLLIN, 0};
  while (poll(&waited, 1, -1) < 0 && errno == EINTR) {
  }
  kill(getpid(), SIGKILL);
}

}  // namespace

int whereabouts_signal() noexcept { return SIGUSR2; }

Worker::Worker(std::int64_t parent) : blocks_(kWorkerMemory), board_(kWorkerMemory) {
  const auto process = static_cast<pid_t>(parent);
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (descriptor < 0 || getppid() != process) _exit(1);
  std::thread(watch, descriptor).detach();

  Kind kind;
  std::string body;
  if (!receive(kWorkerSocket, kind, body) || kind != Kind::kSetup) _exit(0);
  Reader reader(body);
  const auto cell = reader.value<Place>();
  row_ = reinterpret_cast<std::atomic<std::int64_t>*>(board_.at(cell));
  setup_ = std::string(reader.rest());
}

void Worker::ready() { send_all(kWorkerSocket, framed(Kind::kReady, {})); }

bool Worker::next() {
  Kind kind;
  if (!receive(kWorkerSocket, kind, body_) || kind != Kind::kTask) return false;
  task_ = decoded_task(body_);
  row_->store(0);
  return true;
}

void Worker::done(std::string_view beside) {
  send_all(kWorkerSocket, framed(Kind::kDone, beside));
}

void Worker::failed(const Failure& failure) {
  send_all(kWorkerSocket, framed(Kind::kFailed, encoded(failure)));
}

}  // namespace millstream
