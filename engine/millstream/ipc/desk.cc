#include "millstream/ipc/desk.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "millstream/core/error.h"

namespace millstream {
namespace {

constexpr std::int64_t kCell = 64;
constexpr std::size_t kGiven = 2;  // parts that a worker holds: one to go on with
constexpr std::chrono::milliseconds kGrace{300};
constexpr std::chrono::seconds kStartup{60};

std::int64_t sample(const Part& part, std::int64_t row) {
  const auto last = static_cast<std::int64_t>(part.task.indices.size()) - 1;
  return part.task
      .indices[static_cast<std::size_t>(std::clamp<std::int64_t>(row, 0, last))];
}

}  // namespace

Desk::Desk(const Launch& launch, ProcessCrew::Options options,
           std::shared_ptr<SharedMemory> memory)
    : launch_(launch),
      options_(options),
      memory_(std::move(memory)),
      board_(memory_->block(kCell * options.workers)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      restarts_(options.restarts),
      seats_(static_cast<std::size_t>(options.workers)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

Desk::~Desk() {
  end();
  close(wake_);
}

void Desk::end() noexcept {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  nudge();
  thread_.join();
}

void Desk::nudge() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
}

void Desk::add(std::vector<std::shared_ptr<Part>> parts) {
  {
    const std::lock_guard lock(mutex_);
    if (over_) throw Closed("the workers were closed");
    queue_.insert(queue_.end(), parts.begin(), parts.end());
  }
  nudge();
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
  do {
    try {
      drop_cancelled();
      end_abandoned();
      start_workers();
      hand_out();
      look_for_stalls();
    } catch (...) {
      fail_all(std::current_exception());
    }
  } while (wait(stop));
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
    part->job->fail(part->rows(), part->begin,
                    std::make_exception_ptr(Cancelled("nobody wants these rows")));
  }
}

void Desk::end_abandoned() {
  for (Seat& seat : seats_) {
    const bool abandoned = seat.child != nullptr && !seat.given.empty() &&
                           std::ranges::all_of(seat.given, [](const auto& part) {
                             return part->job->cancelled();
                           });
    if (!abandoned) {
      seat.abandoned.reset();
    } else if (!seat.abandoned) {
      seat.abandoned = Clock::now();
    } else if (Clock::now() - *seat.abandoned > kGrace) {
      const auto given = std::exchange(seat.given, {});
      seat.child->kill();
      bury(seat, seat.child->epitaph());
      for (const auto& part : given) {
        part->job->fail(part->rows(), part->begin,
                        std::make_exception_ptr(Cancelled("nobody wants these rows")));
      }
    }
  }
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
  for (std::size_t most = 1; most <= kGiven; ++most) {
    for (Seat& seat : seats_) {
      if (seat.child == nullptr || !seat.ready || seat.given.size() >= most) continue;
      const std::lock_guard lock(mutex_);
      // A second part only where there is enough for everybody.
      if (queue_.empty() || (most > 1 && queue_.size() < seats_.size())) return;
      seat.given.push_back(std::move(queue_.front()));
      queue_.pop_front();
      if (seat.given.size() == 1) {
        seat.row->store(0);
        seat.seen = 0;
        seat.since = seat.begun = Clock::now();
      }
      seat.child->send(framed(Kind::kTask, encoded(seat.given.back()->task)));
    }
  }
}

bool Desk::at_work() const {
  return std::ranges::any_of(seats_, [](const Seat& seat) {
    return seat.child != nullptr && (!seat.ready || !seat.given.empty());
  });
}

bool Desk::wait(const std::stop_token& stop) {
  std::vector<pollfd> waited{{wake_, POLLIN, 0}};
  std::vector<Seat*> seated;
  for (Seat& seat : seats_) {
    if (seat.child == nullptr) continue;
    const short events =
        static_cast<short>(POLLIN | (seat.child->sending() ? POLLOUT : 0));
    waited.push_back({seat.child->socket(), events, 0});
    waited.push_back({seat.child->ended(), POLLIN, 0});
    seated.push_back(&seat);
  }
  const bool watched = (options_.timeout.count() > 0 && at_work()) ||
                       std::ranges::any_of(seats_, [](const Seat& seat) {
                         return seat.abandoned.has_value();
                       });
  poll(waited.data(), waited.size(), watched ? static_cast<int>(kGlance.count()) : -1);
  if (stop.stop_requested()) return false;
  std::uint64_t count;
  [[maybe_unused]] const ssize_t cleared = read(wake_, &count, sizeof(count));
  for (std::size_t i = 0; i < seated.size(); ++i) {
    Seat& seat = *seated[i];
    if (waited[2 * i + 1].revents & POLLOUT) seat.child->send_more();
    if (waited[2 * i + 1].revents & (POLLIN | POLLHUP)) take_answers(seat);
    if (seat.child == nullptr || waited[2 * i + 2].revents == 0) continue;
    take_answers(seat);  // what it said before it ended
    if (seat.child != nullptr) bury(seat, seat.child->epitaph());
  }
  return true;
}

void Desk::take_answers(Seat& seat) {
  Kind kind;
  std::string body;
  while (seat.child != nullptr && seat.child->receive(kind, body)) {
    answer(seat, kind, body);
  }
}

void Desk::answer(Seat& seat, Kind kind, const std::string& body) {
  const auto now = Clock::now();
  if (kind == Kind::kReady) {
    seat.ready = true;
    seat.since = now;
    return;
  }
  if (seat.given.empty()) {  // its setup failed
    const Failure failure = decoded_failure(body);
    seat.unfit = std::make_exception_ptr(
        FunctionError(failure.message, -1, failure.bytes, nullptr));
    return;
  }
  const std::shared_ptr<Part> part = std::move(seat.given.front());
  seat.given.pop_front();
  if (kind == Kind::kDone) {
    pace_.note(part->rows(), now - seat.begun);
    if (part->beside != nullptr && !body.empty()) {
      part->beside->add({part->first, part->rows(), body, nullptr});
    }
    part->job->finish(part->rows());
  } else {
    const Failure failure = decoded_failure(body);
    part->job->fail(
        part->rows(), part->begin + failure.row,
        std::make_exception_ptr(FunctionError(
            failure.message, sample(*part, failure.row), failure.bytes, nullptr)));
  }
  seat.seen = 0;
  seat.since = seat.begun = now;
}

void Desk::bury(Seat& seat, const std::string& epitaph) {
  const pid_t pid = seat.child->pid();
  const bool began = seat.ready;
  const std::int64_t row = seat.row->load();
  const auto given = std::exchange(seat.given, {});
  const auto unfit = std::exchange(seat.unfit, nullptr);
  seat.child.reset();
  seat.ready = false;
  {
    const std::lock_guard lock(mutex_);
    std::erase(pids_, static_cast<std::int64_t>(pid));
    // What it had not begun, others can make.
    for (std::size_t i = given.size(); i-- > 1;) queue_.push_front(given[i]);
  }
  if (!began) {  // and another would not begin either
    fail_all(
        unfit ? unfit
              : std::make_exception_ptr(WorkerDied(text(
                    "worker process ", pid, " ", epitaph, " before it could begin"))));
  } else if (!given.empty() && restarts_ > 0) {
    --restarts_;
    const std::lock_guard lock(mutex_);
    queue_.push_front(given.front());
  } else if (!given.empty()) {
    const Part& part = *given.front();
    part.job->fail(part.rows(), part.begin + row,
                   std::make_exception_ptr(
                       WorkerDied(text("worker process ", pid, " ", epitaph,
                                       " while it made sample ", sample(part, row)))));
  }
  nudge();
}

void Desk::look_for_stalls() {
  if (options_.timeout.count() == 0) return;
  const auto now = Clock::now();
  for (Seat& seat : seats_) {
    if (seat.child == nullptr) continue;
    if (!seat.ready) {
      if (now - seat.since < kStartup + options_.timeout) continue;
      const std::string words = seat.child->whereabouts();
      seat.child->kill();
      bury(seat, text("did not begin within ",
                      std::chrono::milliseconds(kStartup + options_.timeout).count(),
                      " ms\n", words));
      continue;
    }
    if (seat.given.empty()) continue;
    if (const std::int64_t row = seat.row->load(); row != seat.seen) {
      seat.seen = row;
      seat.since = now;
    }
    if (now - seat.since < options_.timeout) continue;
    const std::string words = seat.child->whereabouts();
    const pid_t pid = seat.child->pid();
    const std::int64_t row = seat.seen;
    const std::shared_ptr<Part> part = seat.given.front();
    seat.child->kill();
    if (restarts_ > 0) {
      bury(seat, seat.child->epitaph());
      continue;
    }
    seat.given.pop_front();
    {
      const std::lock_guard lock(mutex_);
      queue_.insert(queue_.begin(), seat.given.begin(), seat.given.end());
    }
    seat.given.clear();
    bury(seat, seat.child->epitaph());
    part->job->fail(part->rows(), part->begin + row,
                    std::make_exception_ptr(WorkerStalled(
                        text("sample ", sample(*part, row), " has taken more than ",
                             options_.timeout.count(), " ms in worker process ", pid,
                             words.empty() ? "" : ", which is at\n", words))));
  }
}

void Desk::fail_all(const std::exception_ptr& error) {
  std::deque<std::shared_ptr<Part>> parts;
  {
    const std::lock_guard lock(mutex_);
    parts.swap(queue_);
  }
  for (const auto& part : parts) part->job->fail(part->rows(), part->begin, error);
}

void Desk::end_all() noexcept {
  const auto over = std::make_exception_ptr(Closed("the workers were closed"));
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
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
    for (const auto& part : seat.given)
      part->job->fail(part->rows(), part->begin, over);
    seat.given.clear();
  }
  const std::lock_guard lock(mutex_);
  pids_.clear();
}

}  // namespace millstream
