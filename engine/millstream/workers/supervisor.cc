#include "millstream/workers/supervisor.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/workers/current_row.h"

namespace millstream {
namespace {

constexpr std::int64_t kCellBytes = 64;
/// How many chunks a process holds: the one that it is making and the next.
constexpr std::size_t kAssigned = 2;
/// How long processes may take to exit after the connection is closed.
constexpr std::chrono::milliseconds kGrace{300};
constexpr std::chrono::milliseconds kUselessTime{1000};
constexpr std::chrono::seconds kStartup{60};

/// Clamps the row to the chunk, because a worker process may report any number.
std::int64_t clamped(const Chunk& chunk, std::int64_t row) {
  return std::clamp<std::int64_t>(row, 0, chunk.rows() - 1);
}

std::int64_t sample(const Chunk& chunk, std::int64_t row) {
  return chunk.task.indices[static_cast<std::size_t>(clamped(chunk, row))];
}

std::string samples_of(const Chunk& chunk, std::int64_t row) {
  return current_samples(row, chunk.task.indices);
}

template <typename E>
void fail(const Chunk& chunk, std::int64_t row, E error) {
  chunk.progress->fail_with(chunk.rows(), chunk.begin + clamped(chunk, row),
                            std::move(error));
}

}  // namespace

/// Each chunk gets its own error object, because different threads wait for the chunks.
template <typename Make>
void Supervisor::fail_all(const Make& error) {
  for (const auto& chunk : take_queue()) fail(*chunk, 0, error());
}

Supervisor::Supervisor(const Launch& launch, ProcessWorkerPool::Options options,
                       std::shared_ptr<SharedMemory> memory)
    : launch_(launch),
      options_(options),
      memory_(std::move(memory)),
      row_cells_(memory_->block(kCellBytes * options.workers)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      restarts_(options.restarts),
      processes_(static_cast<std::size_t>(options.workers)) {
  if (!wake_) {
    throw IoError(errno, {.file = launch_.command[0],
                          .text = text("cannot get an eventfd for worker processes: ",
                                       strerror(errno))});
  }
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  } catch (const std::system_error& error) {
    throw ThreadError(text("the thread for ", options_.workers, " worker processes"),
                      error.code().message());
  }
}

Supervisor::~Supervisor() { end(); }

void Supervisor::end() noexcept {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  wake();
  thread_.join();
}

void Supervisor::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.number(), &one, sizeof(one));
}

void Supervisor::add(std::vector<std::shared_ptr<Chunk>> chunks) {
  bool assignable;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) throw Closed("the worker pool was closed");
    queue_.insert(queue_.end(), chunks.begin(), chunks.end());
    assignable = accepts_chunks_;
  }
  if (assignable) wake();
}

std::vector<std::int64_t> Supervisor::pids() const {
  const std::lock_guard lock(mutex_);
  return pids_;
}

void Supervisor::run(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "millstream-proc");
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  bool more = true;
  while (more) {
    try {
      drop_cancelled();
      start_workers();
      assign_chunks();
      for (ProcessEntry& process : processes_) check(process);
      more = wait(stop);
    } catch (const IoError& error) {
      fail_all([&] { return error; });
      more = !stop.stop_requested();
    } catch (const std::exception& error) {
      fail_all([&] { return Error(error.what()); });
      more = !stop.stop_requested();
    }
  }
  end_all();
}

void Supervisor::drop_cancelled() {
  std::vector<std::shared_ptr<Chunk>> dropped;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(queue_, [&](const auto& chunk) {
      if (!chunk->progress->cancelled()) return false;
      dropped.push_back(chunk);
      return true;
    });
  }
  for (const auto& chunk : dropped) {
    fail(*chunk, 0, Cancelled("the request was cancelled"));
  }
}

void Supervisor::requeue(std::shared_ptr<Chunk> chunk) {
  const std::lock_guard lock(mutex_);
  queue_.push_front(std::move(chunk));
}

void Supervisor::start_workers() {
  {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) return;
  }
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    ProcessEntry& process = processes_[i];
    if (process.child != nullptr) continue;
    std::byte* cell = row_cells_.data() + kCellBytes * static_cast<std::int64_t>(i);
    process.row = reinterpret_cast<std::atomic<std::int64_t>*>(cell);
    process.row->store(0);
    process.child = std::make_unique<Child>(launch_, memory_->descriptor());
    process.since = Clock::now();
    std::string body;
    MessageWriter(body).value(memory_->location(cell).value());
    body += launch_.setup;
    process.child->send(framed(MessageKind::kSetup, body));
    const std::lock_guard lock(mutex_);
    pids_.push_back(process.child->pid());
  }
}

void Supervisor::assign_chunks() {
  const auto busy = [](const ProcessEntry& process) {
    return process.child != nullptr && process.ready &&
           process.assigned.size() >= kAssigned;
  };
  {
    const std::lock_guard lock(mutex_);
    accepts_chunks_ =
        true;  // set before reading the queue, so that a later `add` wakes it
  }
  for (std::size_t most = 1; most <= kAssigned; ++most) {
    for (ProcessEntry& process : processes_) {
      if (process.child == nullptr || !process.ready || process.assigned.size() >= most)
        continue;
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) return;
      // A process gets a second chunk only if there are enough for all, or if the chunk
      // is short.
      const bool scarce = queue_.size() < processes_.size();
      if (most > 1 && scarce && !chunk_size_.is_short(queue_.front()->rows())) return;
      std::string message = framed(MessageKind::kTask, encoded(queue_.front()->task));
      process.assigned.push_back(std::move(queue_.front()));
      queue_.pop_front();
      if (process.assigned.size() == 1) {
        process.row->store(0);
        process.last_row = 0;
        process.since = process.begun = Clock::now();
      }
      process.child->send(std::move(message));
    }
  }
  const std::lock_guard lock(mutex_);
  accepts_chunks_ = !std::ranges::all_of(
      processes_, busy);  // if all are busy, the next answer wakes it
}

bool Supervisor::queue_is_empty() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty();
}

bool Supervisor::needs_checks() const {
  return std::ranges::any_of(processes_, [this](const ProcessEntry& process) {
    if (process.child == nullptr) return false;
    const bool busy = !process.ready || !process.assigned.empty();
    return process.useless_since.has_value() || (options_.timeout.count() > 0 && busy);
  });
}

bool Supervisor::wait(const std::stop_token& stop) {
  std::vector<pollfd> waited{{wake_.number(), POLLIN, 0}};
  std::vector<ProcessEntry*> running;
  for (ProcessEntry& process : processes_) {
    if (process.child == nullptr) continue;
    const short events =
        static_cast<short>(POLLIN | (process.child->sending() ? POLLOUT : 0));
    // A closed socket is always readable, so poll must ignore it.
    const int socket = process.child->disconnected() ? -1 : process.child->socket();
    waited.push_back({socket, events, 0});
    waited.push_back({process.child->exit_descriptor(), POLLIN, 0});
    running.push_back(&process);
  }
  const int timeout = needs_checks() ? static_cast<int>(kPollInterval.count()) : -1;
  poll(waited.data(), waited.size(), timeout);
  if (stop.stop_requested()) return false;
  std::uint64_t count;
  [[maybe_unused]] const ssize_t cleared = read(wake_.number(), &count, sizeof(count));
  for (std::size_t i = 0; i < running.size(); ++i) {
    ProcessEntry& process = *running[i];
    if (waited[2 * i + 1].revents & POLLOUT) process.child->send_more();
    if (waited[2 * i + 1].revents & ~POLLOUT) take_answers(process);
    if (process.child == nullptr || waited[2 * i + 2].revents == 0) continue;
    take_answers(process);  // answers sent before the exit
    if (process.child != nullptr) remove_process(process, process.child->exit_reason());
  }
  return true;
}

void Supervisor::take_answers(ProcessEntry& process) {
  MessageKind kind;
  std::string body;
  try {
    while (process.child != nullptr && process.child->receive(kind, body)) {
      answer(process, kind, body);
    }
  } catch (const DataError& error) {
    remove_process(process, text("sent an invalid answer (", error.what(), ")"));
    return;
  }
  if (process.child != nullptr && process.child->disconnected() &&
      !process.useless_since) {
    process.useless_since = Clock::now();
  }
}

void Supervisor::answer(ProcessEntry& process, MessageKind kind,
                        const std::string& body) {
  const auto now = Clock::now();
  if (!process.ready && kind == MessageKind::kReady) {
    process.ready = true;
    process.since = now;
    return;
  }
  if (!process.ready && kind == MessageKind::kFailed) {
    const Failure failure = decoded_failure(body);
    end_process(process);  // or its exit would be reported too
    fail_all(
        [&] { return FunctionError(failure.message, -1, failure.bytes, nullptr); });
    return;
  }
  if (process.assigned.empty() ||
      (kind != MessageKind::kDone && kind != MessageKind::kFailed)) {
    throw DataError("it has no task, or the answer has the wrong kind");
  }
  std::optional<Failure> failure;
  std::vector<std::string> host_values;
  if (kind == MessageKind::kFailed) {
    failure = decoded_failure(body);
  } else {
    host_values = decoded_host_values(body);
    const auto rows = process.assigned.front()->task.indices.size();
    if (!host_values.empty() && host_values.size() != rows) {
      throw DataError(
          text("it has ", host_values.size(), " host values for ", rows, " rows"));
    }
  }
  const std::shared_ptr<Chunk> chunk = std::move(process.assigned.front());
  process.assigned.pop_front();
  const auto begun = process.begun;
  process.last_row = 0;
  process.since = process.begun = now;
  process.useless_since.reset();
  process.has_answered = true;
  if (failure) {
    const std::int64_t of = failure->row < 0 ? -1 : sample(*chunk, failure->row);
    fail(*chunk, failure->row,
         FunctionError(failure->message, of, failure->bytes, nullptr,
                       failure->transient));
    return;
  }
  chunk_size_.record(chunk->rows(), now - begun);
  if (chunk->host_values != nullptr && !host_values.empty()) {
    std::vector<HostValue> values;
    for (std::string& bytes : host_values) {
      const auto row = chunk->first + static_cast<std::int64_t>(values.size());
      values.push_back({row, nullptr, std::move(bytes)});
    }
    chunk->host_values->add(std::move(values));
  }
  chunk->progress->finish(chunk->rows());
}

/// Ends a process and returns the chunk that it was making, or null. Chunks that it has
/// not started go back to the queue.
std::shared_ptr<Chunk> Supervisor::end_process(ProcessEntry& process) {
  const std::int64_t pid = process.child->pid();
  auto assigned = std::exchange(process.assigned, {});
  process.child.reset();
  process.ready = process.has_answered = false;
  process.useless_since.reset();
  const std::lock_guard lock(mutex_);
  std::erase(pids_, pid);
  for (std::size_t i = assigned.size(); i-- > 1;)
    queue_.push_front(std::move(assigned[i]));
  wake();
  return assigned.empty() ? nullptr : std::move(assigned.front());
}

void Supervisor::remove_process(ProcessEntry& process, const std::string& reason) {
  const pid_t pid = process.child->pid();
  const bool began = process.ready;
  const bool has_answered = process.has_answered;
  const std::int64_t row = process.row->load();
  const std::shared_ptr<Chunk> chunk = end_process(process);
  // An idle process that exits is replaced when there are chunks. But a process that
  // always exits before its first answer would be replaced forever, so that case is an
  // error.
  if (began && chunk == nullptr && (has_answered || queue_is_empty())) return;
  if (restarts_ > 0) {
    --restarts_;
    if (chunk != nullptr) requeue(chunk);
  } else if (chunk != nullptr) {
    const auto sample = current_sample(row, chunk->task.indices);
    const std::string words =
        sample ? reason : text(reason, " while it made ", samples_of(*chunk, row));
    fail(*chunk, row, WorkerDied({.sample = sample, .process = pid, .text = words}));
  } else {  // a new process would fail too
    fail_all([&] {
      return WorkerDied(
          {.process = pid, .text = reason + " before it made its first sample"});
    });
  }
}

void Supervisor::check(ProcessEntry& process) {
  if (process.child == nullptr) return;
  const bool unwanted =
      !process.assigned.empty() && process.assigned.front()->progress->stopped();
  if (!unwanted && !process.child->disconnected()) {
    process.useless_since.reset();
    if (options_.timeout.count() > 0) check_timeout(process);
    return;
  }
  if (!process.useless_since) process.useless_since = Clock::now();
  if (Clock::now() - *process.useless_since < kUselessTime) return;
  if (unwanted) {
    fail(*end_process(process), 0, Cancelled("the request was cancelled"));
  } else {
    remove_process(process, "closed its connection to the worker pool");
  }
}

void Supervisor::check_timeout(ProcessEntry& process) {
  const auto now = Clock::now();
  if (!process.ready) {
    const std::chrono::milliseconds most = kStartup + options_.timeout;
    if (now - process.since < most) return;
    const std::string stack = process.child->stack();
    remove_process(process, text("took more than ", most.count(), " ms to start, at\n",
                                 stack, "\n"));
    return;
  }
  if (process.assigned.empty()) return;
  if (const std::int64_t row = process.row->load(); row != process.last_row) {
    process.last_row = row;
    process.since = now;
  }
  const std::chrono::milliseconds most =
      options_.timeout *
      current_row_count(process.last_row, process.assigned.front()->rows());
  if (std::chrono::duration_cast<std::chrono::milliseconds>(now - process.since) <
      most) {
    return;
  }
  if (restarts_ > 0) {
    remove_process(process, "stalled");
    return;
  }
  const std::string stack = process.child->stack();
  const pid_t pid = process.child->pid();
  const std::int64_t row = process.last_row;
  const std::shared_ptr<Chunk> chunk = end_process(process);
  const auto sample = current_sample(row, chunk->task.indices);
  fail(*chunk, row,
       WorkerStalled(
           {.sample = sample,
            .process = pid,
            .text = text(sample ? "" : samples_of(*chunk, row) + " ",
                         "has taken more than ", most.count(), " ms in worker process ",
                         pid, stack.empty() ? "" : ", which is at\n", stack)}));
}

std::deque<std::shared_ptr<Chunk>> Supervisor::take_queue() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(queue_, {});
}

void Supervisor::end_all() noexcept {
  const auto closed = [] { return Closed("the worker pool was closed"); };
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;  // `add` throws from now on
  }
  fail_all(closed);
  for (ProcessEntry& process : processes_) {
    if (process.child != nullptr) process.child->disconnect();
  }
  const auto deadline = Clock::now() + kGrace;
  for (ProcessEntry& process : processes_) {
    if (process.child == nullptr) continue;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd waited{process.child->exit_descriptor(), POLLIN, 0};
    poll(&waited, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    process.child.reset();
    for (const auto& chunk : process.assigned) fail(*chunk, 0, closed());
    process.assigned.clear();
  }
  const std::lock_guard lock(mutex_);
  pids_.clear();
}

}  // namespace millstream
