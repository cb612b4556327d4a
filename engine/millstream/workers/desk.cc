#include "millstream/workers/desk.h"

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

namespace millstream {
namespace {

constexpr std::int64_t kCell = 64;
constexpr std::size_t kGiven = 2;  // parts that a worker holds: one to go on with
constexpr std::chrono::milliseconds kGrace{300};  // to end by themselves
constexpr std::chrono::milliseconds kUseless{1000};
constexpr std::chrono::seconds kStartup{60};

/// A row of the part, whatever a worker said.
std::int64_t within(const Part& part, std::int64_t row) {
  return std::clamp<std::int64_t>(row, 0, part.rows() - 1);
}

std::int64_t sample(const Part& part, std::int64_t row) {
  return part.task.indices[static_cast<std::size_t>(within(part, row))];
}

std::string named(const Part& part, std::int64_t row) {
  return samples_at(row, part.task.indices);
}

template <typename E>
void fail(const Part& part, std::int64_t row, E error) {
  part.job->fail_with(part.rows(), part.begin + within(part, row), std::move(error));
}

}  // namespace

/// Each with an error of its own: those who wait are different threads.
template <typename Make>
void Desk::fail_all(const Make& error) {
  for (const auto& part : queued()) fail(*part, 0, error());
}

Desk::Desk(const Launch& launch, ProcessCrew::Options options,
           std::shared_ptr<SharedMemory> memory)
    : launch_(launch),
      options_(options),
      memory_(std::move(memory)),
      board_(memory_->block(kCell * options.workers)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      restarts_(options.restarts),
      seats_(static_cast<std::size_t>(options.workers)) {
  if (!wake_) {
    throw IoError(
        errno, launch_.command[0],
        text("worker processes: cannot have a descriptor: ", strerror(errno)));
  }
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  } catch (const std::system_error& error) {
    throw ThreadError(text("the thread for ", options_.workers, " worker processes"),
                      error.code().message());
  }
}

Desk::~Desk() { end(); }

void Desk::end() noexcept {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  nudge();
  thread_.join();
}

void Desk::nudge() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.number(), &one, sizeof(one));
}

void Desk::add(std::vector<std::shared_ptr<Part>> parts) {
  bool awaited;
  {
    const std::lock_guard lock(mutex_);
    if (over_) throw Closed("the workers were closed");
    queue_.insert(queue_.end(), parts.begin(), parts.end());
    awaited = hungry_;
  }
  if (awaited) nudge();
}

std::vector<std::int64_t> Desk::pids() const {
  const std::lock_guard lock(mutex_);
  return pids_;
}

void Desk::run(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "millstream-desk");
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  bool more = true;
  while (more) {
    try {
      drop_cancelled();
      start_workers();
      hand_out();
      for (Seat& seat : seats_) look_after(seat);
      more = wait(stop);
    } catch (const IoError& error) {
      fail_all([&] { return IoError(error.code(), error.path(), error.what()); });
      more = !stop.stop_requested();
    } catch (const std::exception& error) {
      fail_all([&] { return Error(error.what()); });
      more = !stop.stop_requested();
    }
  }
  end_all();
}

void Desk::drop_cancelled() {
  std::vector<std::shared_ptr<Part>> dropped;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(queue_, [&](const auto& part) {
      if (!part->job->cancelled()) return false;
      dropped.push_back(part);
      return true;
    });
  }
  for (const auto& part : dropped) {
    fail(*part, 0, Cancelled("nobody wants these rows"));
  }
}

void Desk::put_back(std::shared_ptr<Part> part) {
  const std::lock_guard lock(mutex_);
  queue_.push_front(std::move(part));
}

void Desk::start_workers() {
  {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) return;
  }
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    Seat& seat = seats_[i];
    if (seat.child != nullptr) continue;
    std::byte* cell = board_.data() + kCell * static_cast<std::int64_t>(i);
    seat.row = reinterpret_cast<std::atomic<std::int64_t>*>(cell);
    seat.row->store(0);
    seat.child = std::make_unique<Child>(launch_, memory_->descriptor());
    seat.since = Clock::now();
    std::string body;
    Writer(body).value(memory_->place(cell).value());
    body += launch_.setup;
    seat.child->send(framed(Kind::kSetup, body));
    const std::lock_guard lock(mutex_);
    pids_.push_back(seat.child->pid());
  }
}

void Desk::hand_out() {
  const auto busy = [](const Seat& seat) {
    return seat.child != nullptr && seat.ready && seat.given.size() >= kGiven;
  };
  {
    const std::lock_guard lock(mutex_);
    hungry_ = true;  // before it looks into the queue: what comes later wakes it
  }
  for (std::size_t most = 1; most <= kGiven; ++most) {
    for (Seat& seat : seats_) {
      if (seat.child == nullptr || !seat.ready || seat.given.size() >= most) continue;
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) return;
      // A second part only where there is enough for everybody, or it is soon done.
      const bool scarce = queue_.size() < seats_.size();
      if (most > 1 && scarce && !pace_.is_short(queue_.front()->rows())) return;
      std::string message = framed(Kind::kTask, encoded(queue_.front()->task));
      seat.given.push_back(std::move(queue_.front()));
      queue_.pop_front();
      if (seat.given.size() == 1) {
        seat.row->store(0);
        seat.seen = 0;
        seat.since = seat.begun = Clock::now();
      }
      seat.child->send(std::move(message));
    }
  }
  const std::lock_guard lock(mutex_);
  hungry_ = !std::ranges::all_of(seats_, busy);  // else the next answer wakes it
}

bool Desk::idle() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty();
}

bool Desk::watched() const {
  return std::ranges::any_of(seats_, [this](const Seat& seat) {
    if (seat.child == nullptr) return false;
    const bool busy = !seat.ready || !seat.given.empty();
    return seat.useless.has_value() || (options_.timeout.count() > 0 && busy);
  });
}

bool Desk::wait(const std::stop_token& stop) {
  std::vector<pollfd> waited{{wake_.number(), POLLIN, 0}};
  std::vector<Seat*> seated;
  for (Seat& seat : seats_) {
    if (seat.child == nullptr) continue;
    const short events =
        static_cast<short>(POLLIN | (seat.child->sending() ? POLLOUT : 0));
    // One that has gone would be readable for ever.
    const int socket = seat.child->gone() ? -1 : seat.child->socket();
    waited.push_back({socket, events, 0});
    waited.push_back({seat.child->ended(), POLLIN, 0});
    seated.push_back(&seat);
  }
  const int patience = watched() ? static_cast<int>(kGlance.count()) : -1;
  poll(waited.data(), waited.size(), patience);
  if (stop.stop_requested()) return false;
  std::uint64_t count;
  [[maybe_unused]] const ssize_t cleared = read(wake_.number(), &count, sizeof(count));
  for (std::size_t i = 0; i < seated.size(); ++i) {
    Seat& seat = *seated[i];
    if (waited[2 * i + 1].revents & POLLOUT) seat.child->send_more();
    if (waited[2 * i + 1].revents & ~POLLOUT) take_answers(seat);
    if (seat.child == nullptr || waited[2 * i + 2].revents == 0) continue;
    take_answers(seat);  // what it said before it ended
    if (seat.child != nullptr) bury(seat, seat.child->epitaph());
  }
  return true;
}

void Desk::take_answers(Seat& seat) {
  Kind kind;
  std::string body;
  try {
    while (seat.child != nullptr && seat.child->receive(kind, body)) {
      answer(seat, kind, body);
    }
  } catch (const DataError& error) {
    bury(seat, text("sent what is no answer (", error.what(), ")"));
    return;
  }
  if (seat.child != nullptr && seat.child->gone() && !seat.useless) {
    seat.useless = Clock::now();
  }
}

void Desk::answer(Seat& seat, Kind kind, const std::string& body) {
  const auto now = Clock::now();
  if (!seat.ready && kind == Kind::kReady) {
    seat.ready = true;
    seat.since = now;
    return;
  }
  if (!seat.ready && kind == Kind::kFailed) {
    const Failure failure = decoded_failure(body);
    vacate(seat);  // or its end would be an error of its own
    fail_all(
        [&] { return FunctionError(failure.message, -1, failure.bytes, nullptr); });
    return;
  }
  if (seat.given.empty() || (kind != Kind::kDone && kind != Kind::kFailed)) {
    throw DataError("nobody asked for it");
  }
  std::optional<Failure> failure;
  if (kind == Kind::kFailed) failure = decoded_failure(body);
  const std::shared_ptr<Part> part = std::move(seat.given.front());
  seat.given.pop_front();
  const auto begun = seat.begun;
  seat.seen = 0;
  seat.since = seat.begun = now;
  seat.useless.reset();
  seat.proven = true;
  if (failure) {
    const std::int64_t of = failure->row < 0 ? -1 : sample(*part, failure->row);
    fail(*part, failure->row,
         FunctionError(failure->message, of, failure->bytes, nullptr,
                       failure->transient));
    return;
  }
  pace_.note(part->rows(), now - begun);
  if (part->beside != nullptr && !body.empty()) {
    part->beside->add({part->first, part->rows(), body, nullptr});
  }
  part->job->finish(part->rows());
}

/// Ends a worker. Gives the part that it was at; what it had not begun, others make.
std::shared_ptr<Part> Desk::vacate(Seat& seat) {
  const std::int64_t pid = seat.child->pid();
  auto given = std::exchange(seat.given, {});
  seat.child.reset();
  seat.ready = seat.proven = false;
  seat.useless.reset();
  const std::lock_guard lock(mutex_);
  std::erase(pids_, pid);
  for (std::size_t i = given.size(); i-- > 1;) queue_.push_front(std::move(given[i]));
  nudge();
  return given.empty() ? nullptr : std::move(given.front());
}

void Desk::bury(Seat& seat, const std::string& epitaph) {
  const std::string who = text("worker process ", seat.child->pid(), " ", epitaph);
  const bool began = seat.ready;
  const bool proven = seat.proven;
  const std::int64_t row = seat.row->load();
  const std::shared_ptr<Part> part = vacate(seat);
  // Another takes its place when there is work; but one that ends before its first
  // part while there is could be followed by others without end.
  if (began && part == nullptr && (proven || idle())) return;
  if (restarts_ > 0) {
    --restarts_;
    if (part != nullptr) put_back(part);
  } else if (part != nullptr) {
    fail(*part, row, WorkerDied(text(who, " while it made ", named(*part, row))));
  } else {  // and another would not begin either
    fail_all([&] { return WorkerDied(text(who, " before it could begin")); });
  }
}

void Desk::look_after(Seat& seat) {
  if (seat.child == nullptr) return;
  const bool unwanted = !seat.given.empty() && seat.given.front()->job->stopped();
  if (!unwanted && !seat.child->gone()) {
    seat.useless.reset();
    if (options_.timeout.count() > 0) look_for_stall(seat);
    return;
  }
  if (!seat.useless) seat.useless = Clock::now();
  if (Clock::now() - *seat.useless < kUseless) return;
  if (unwanted) {
    fail(*vacate(seat), 0, Cancelled("nobody wants these rows"));
  } else {
    bury(seat, "closed its connection");
  }
}

void Desk::look_for_stall(Seat& seat) {
  const auto now = Clock::now();
  if (!seat.ready) {
    const std::chrono::milliseconds most = kStartup + options_.timeout;
    if (now - seat.since < most) return;
    const std::string words = seat.child->whereabouts();
    bury(seat, text("took more than ", most.count(), " ms, at\n", words, "\n"));
    return;
  }
  if (seat.given.empty()) return;
  if (const std::int64_t row = seat.row->load(); row != seat.seen) {
    seat.seen = row;
    seat.since = now;
  }
  const std::chrono::milliseconds most =
      options_.timeout * rows_at_once(seat.seen, seat.given.front()->rows());
  if (std::chrono::duration_cast<std::chrono::milliseconds>(now - seat.since) < most) {
    return;
  }
  if (restarts_ > 0) {
    bury(seat, "stalled");
    return;
  }
  const std::string words = seat.child->whereabouts();
  const pid_t pid = seat.child->pid();
  const std::int64_t row = seat.seen;
  const std::shared_ptr<Part> part = vacate(seat);
  fail(*part, row,
       WorkerStalled(text(named(*part, row), " has taken more than ", most.count(),
                          " ms in worker process ", pid,
                          words.empty() ? "" : ", which is at\n", words)));
}

std::deque<std::shared_ptr<Part>> Desk::queued() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(queue_, {});
}

void Desk::end_all() noexcept {
  const auto over = [] { return Closed("the workers were closed"); };
  {
    const std::lock_guard lock(mutex_);
    over_ = true;  // from here on nothing is added
  }
  fail_all(over);
  for (Seat& seat : seats_) {
    if (seat.child != nullptr) seat.child->hang_up();
  }
  const auto deadline = Clock::now() + kGrace;
  for (Seat& seat : seats_) {
    if (seat.child == nullptr) continue;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd waited{seat.child->ended(), POLLIN, 0};
    poll(&waited, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    seat.child.reset();
    for (const auto& part : seat.given) fail(*part, 0, over());
    seat.given.clear();
  }
  const std::lock_guard lock(mutex_);
  pids_.clear();
}

}  // namespace millstream
