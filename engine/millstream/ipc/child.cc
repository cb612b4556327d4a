#include "millstream/ipc/child.h"

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

#include "millstream/core/error.h"
#include "millstream/ipc/worker.h"

namespace millstream {
namespace {

/// The lowest number of a descriptor of ours: a worker's own are below.
constexpr int kOurs = 10;
constexpr std::chrono::milliseconds kWordsPatience{300};

[[noreturn]] void fail(int code, const char* what, const std::string& program) {
  throw IoError(code, program, text(program, ": ", what, ": ", strerror(code)));
}

/// A descriptor that closes itself.
struct Descriptor {
  ~Descriptor() {
    if (number >= 0) close(number);
  }
  /// Moves it above those of a worker.
  bool lift() {
    const int higher = fcntl(number, F_DUPFD_CLOEXEC, kOurs);
    if (higher < 0) return false;
    close(number);
    number = higher;
    return true;
  }
  int release() { return std::exchange(number, -1); }
  int number = -1;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& item : texts)
    result.push_back(const_cast<char*>(item.data()));
  result.push_back(nullptr);
  return result;
}

/// The actions and attributes of a spawn, freed with it.
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
  Descriptor ours, theirs, read_end, write_end;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    fail(errno, "cannot make a socket", program);
  }
  ours.number = ends[0];
  theirs.number = ends[1];
  if (pipe2(ends, O_CLOEXEC) != 0) fail(errno, "cannot make a pipe", program);
  read_end.number = ends[0];
  write_end.number = ends[1];
  for (Descriptor* descriptor : {&ours, &theirs, &read_end, &write_end}) {
    if (!descriptor->lift()) fail(errno, "too many open files", program);
  }
  fcntl(ours.number, F_SETFL, O_NONBLOCK);
  fcntl(read_end.number, F_SETFL, O_NONBLOCK);

  Spawn spawn;
  posix_spawn_file_actions_addopen(&spawn.actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&spawn.actions, theirs.number, kWorkerSocket);
  posix_spawn_file_actions_adddup2(&spawn.actions, memory, kWorkerMemory);
  posix_spawn_file_actions_adddup2(&spawn.actions, write_end.number, kWorkerWords);
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 34)
  posix_spawn_file_actions_addclosefrom_np(&spawn.actions, kWorkerWords + 1);
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
  if (code != 0) fail(code, "cannot be started", program);
  ended_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (ended_ < 0) {
    const int why = errno;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    fail(why, "cannot be watched", program);
  }
  socket_ = ours.release();
  words_ = read_end.release();
}

Child::~Child() {
  kill();
  epitaph();
  close(socket_);
  close(ended_);
  close(words_);
}

void Child::send(std::string message) {
  if (unsent_.empty()) {
    unsent_ = std::move(message);
  } else {
    unsent_ += message;
  }
  send_more();
}

void Child::send_more() {
  while (!unsent_.empty()) {
    const ssize_t sent = ::send(socket_, unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent <= 0) {
      unsent_.clear();  // it has gone, which is seen elsewhere
      return;
    }
    unsent_.erase(0, static_cast<std::size_t>(sent));
  }
}

bool Child::receive(Kind& kind, std::string& body) {
  while (true) {
    if (received_.size() >= sizeof(Header)) {
      const auto header = Reader(received_).value<Header>();
      const std::size_t whole = sizeof(Header) + static_cast<std::size_t>(header.bytes);
      if (received_.size() >= whole) {
        kind = header.kind;
        body = received_.substr(sizeof(Header), whole - sizeof(Header));
        received_.erase(0, whole);
        return true;
      }
    }
    char buffer[1 << 16];
    const ssize_t got = recv(socket_, buffer, sizeof(buffer), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    received_.append(buffer, static_cast<std::size_t>(got));
  }
}

std::string Child::whereabouts() {
  ::kill(pid_, whereabouts_signal());
  std::string words;
  const auto deadline = std::chrono::steady_clock::now() + kWordsPatience;
  pollfd waited{words_, POLLIN, 0};
  int patience = static_cast<int>(kWordsPatience.count());
  while (patience > 0 && poll(&waited, 1, patience) > 0) {
    char buffer[1 << 14];
    const ssize_t got = read(words_, buffer, sizeof(buffer));
    if (got <= 0) break;
    words.append(buffer, static_cast<std::size_t>(got));
    patience = 20;  // the rest follows at once
    if (std::chrono::steady_clock::now() > deadline) break;
  }
  return words;
}

void Child::hang_up() noexcept { shutdown(socket_, SHUT_RDWR); }

void Child::kill() noexcept {
  if (epitaph_.empty()) ::kill(pid_, SIGKILL);
}

std::string Child::epitaph() {
  if (!epitaph_.empty()) return epitaph_;
  int status = 0;
  pid_t found;
  while ((found = waitpid(pid_, &status, 0)) < 0 && errno == EINTR) {
  }
  if (found < 0) {
    epitaph_ = "ended and somebody else waited for it";
  } else if (WIFSIGNALED(status)) {
    epitaph_ = text("was killed by signal ", WTERMSIG(status), " (",
                    strsignal(WTERMSIG(status)), ")");
  } else {
    epitaph_ = text("exited with status ", WEXITSTATUS(status));
  }
  return epitaph_;
}

}  // namespace millstream
