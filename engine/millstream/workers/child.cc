#include "millstream/workers/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/workers/worker.h"

namespace millstream {
namespace {

constexpr std::chrono::milliseconds kStackTimeout{300};

[[noreturn]] void fail(int code, const char* what, const std::string& program) {
  throw IoError(code, {.file = program, .text = text(what, ": ", strerror(code))});
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& item : texts)
    result.push_back(const_cast<char*>(item.data()));
  result.push_back(nullptr);
  return result;
}

/// The actions and attributes of posix_spawn, freed on destruction.
struct Spawn {
  Spawn() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~Spawn() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

}  // namespace

Child::Child(const Launch& launch, int memory) {
  const std::string& program = launch.command.at(0);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    fail(errno, "cannot create a socket for a worker process", program);
  }
  Descriptor ours(ends[0]), theirs(ends[1]);
  if (pipe2(ends, O_CLOEXEC) != 0)
    fail(errno, "cannot create a pipe for a worker process", program);
  Descriptor read_end(ends[0]), write_end(ends[1]);
  for (Descriptor* descriptor : {&ours, &theirs, &read_end, &write_end}) {
    if (!descriptor->lift())
      fail(errno, "cannot get a file descriptor for a worker process", program);
  }
  fcntl(ours.number(), F_SETFL, O_NONBLOCK);
  fcntl(read_end.number(), F_SETFL, O_NONBLOCK);

  Spawn spawn;
  posix_spawn_file_actions_addopen(&spawn.actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&spawn.actions, theirs.number(), kWorkerSocket);
  posix_spawn_file_actions_adddup2(&spawn.actions, memory, kWorkerMemory);
  posix_spawn_file_actions_adddup2(&spawn.actions, write_end.number(), kWorkerStack);
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 34)
  posix_spawn_file_actions_addclosefrom_np(&spawn.actions, kWorkerStack + 1);
#endif
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&spawn.attributes, &none);
  posix_spawnattr_setsigdefault(&spawn.attributes, &all);
  posix_spawnattr_setpgroup(&spawn.attributes, 0);
  posix_spawnattr_setflags(&spawn.attributes, POSIX_SPAWN_SETSIGMASK |
                                                  POSIX_SPAWN_SETSIGDEF |
                                                  POSIX_SPAWN_SETPGROUP);
  const auto arguments = pointers(launch.command);
  const auto environment = pointers(launch.environment);
  const int code = posix_spawn(&pid_, program.c_str(), &spawn.actions,
                               &spawn.attributes, arguments.data(), environment.data());
  if (code == EAGAIN || code == ENOMEM) {
    throw IoError(code, {.file = program,
                         .text = text("cannot be started as a worker process: ",
                                      strerror(code), ". ", ThreadError::kRemedy)});
  }
  if (code != 0) fail(code, "cannot be started", program);
  exit_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (!exit_) {
    const int why = errno;
    ::kill(pid_, SIGKILL);
    reap();
    fail(why, "cannot be watched by a pidfd", program);
  }
  socket_ = std::move(ours);
  stack_ = std::move(read_end);
}

Child::~Child() {
  kill();
  reap();
}

void Child::send(std::string message) {
  if (!sending()) {
    unsent_ = std::move(message);
    sent_ = 0;
  } else {
    unsent_ += message;
  }
  send_more();
}

void Child::send_more() noexcept {
  while (sending()) {
    const ssize_t sent =
        ::send(socket(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent <= 0) break;  // disconnected; `receive` will report it
    sent_ += static_cast<std::size_t>(sent);
  }
  unsent_ = {};
  sent_ = 0;
}

bool Child::receive(MessageKind& kind, std::string& body) {
  while (true) {
    if (received_.size() >= sizeof(MessageHeader)) {
      const MessageHeader header = header_of(received_);
      const std::size_t whole =
          sizeof(MessageHeader) + static_cast<std::size_t>(header.bytes);
      if (received_.size() >= whole) {
        kind = header.kind;
        body = received_.substr(sizeof(MessageHeader), whole - sizeof(MessageHeader));
        received_.erase(0, whole);
        return true;
      }
    }
    if (disconnected_) return false;
    char buffer[1 << 16];
    const ssize_t got = recv(socket(), buffer, sizeof(buffer), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got <= 0) {
      disconnected_ = true;
      return false;
    }
    received_.append(buffer, static_cast<std::size_t>(got));
  }
}

std::string Child::stack() {
  signal(stack_signal());
  std::string stack;
  const auto deadline = std::chrono::steady_clock::now() + kStackTimeout;
  pollfd waited{stack_.number(), POLLIN, 0};
  int timeout = static_cast<int>(kStackTimeout.count());
  while (timeout > 0 && poll(&waited, 1, timeout) > 0) {
    char buffer[1 << 14];
    const ssize_t got = read(stack_.number(), buffer, sizeof(buffer));
    if (got <= 0) break;
    stack.append(buffer, static_cast<std::size_t>(got));
    timeout = 20;  // the rest follows at once
    if (std::chrono::steady_clock::now() > deadline) break;
  }
  return stack;
}

void Child::disconnect() noexcept { shutdown(socket(), SHUT_RDWR); }

void Child::signal(int number) noexcept {
  // Uses the pidfd, because the kernel may reuse the pid if another thread has reaped
  // the process.
  syscall(SYS_pidfd_send_signal, exit_descriptor(), number, nullptr, 0);
}

void Child::kill() noexcept {
  if (!reaped_) signal(SIGKILL);
}

void Child::reap() noexcept {
  if (reaped_) return;
  pid_t found;
  while ((found = waitpid(pid_, &status_, 0)) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  known_ = found == pid_;
}

std::string Child::exit_reason() {
  reap();
  if (!known_)
    return "ended, and other code of this program has already read its exit status";
  if (WIFSIGNALED(status_)) {
    const int number = WTERMSIG(status_);
    return text("was killed by signal ", number, " (", strsignal(number), ")");
  }
  return text("exited with status ", WEXITSTATUS(status_));
}

}  // namespace millstream
