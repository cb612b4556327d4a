#include "millstream/parallel/thread_crew.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/parallel/job.h"
#include "millstream/parallel/process.h"

namespace millstream {
namespace {

using Clock = std::chrono::steady_clock;

/// How long closing waits for functions that are running.
constexpr std::chrono::milliseconds kGrace{1000};

/// Rows in memory of their own: whoever waits may give up while they are written.
struct Copy {
  explicit Copy(const Work& from)
      : indices(from.indices.begin(), from.indices.end()),
        seeds(from.seeds.begin(), from.seeds.end()) {
    for (const Column& column : from.input) add(column, input, true);
    for (const Column& column : from.output) add(column, output, false);
    work = {indices, seeds, input, output, from.making, from.first};
  }
  void add(const Column& column, std::vector<Column>& to, bool filled) {
    const std::int64_t bytes = column.row_bytes();
    const auto rows = static_cast<std::int64_t>(indices.size());
    blocks.emplace_back(bytes * rows);
    to.push_back({column.dtype, column.shape, blocks.back().data(), bytes, nullptr});
    for (std::int64_t k = 0; filled && k < rows; ++k) {
      std::memcpy(to.back().row(k), column.row(k), static_cast<std::size_t>(bytes));
    }
  }

  std::vector<std::int64_t> indices;
  std::vector<std::uint64_t> seeds;
  std::vector<Block> blocks;
  std::vector<Column> input;
  std::vector<Column> output;
  Beside beside;
  Work work;
};

}  // namespace

struct ThreadCrew::Part {
  std::shared_ptr<Job> job;
  std::int64_t begin = 0;
  Work work;
  std::vector<Column> input;
  std::vector<Column> output;
  std::shared_ptr<Copy> copy;  // set where whoever waits may give up
};

struct ThreadCrew::Seat {
  std::atomic<std::int64_t> row{0};
  // The rest is guarded by the crew's mutex.
  std::shared_ptr<Part> part;
  Clock::time_point since;
  std::int64_t seen = 0;
  std::uint64_t thread = 0;
  bool lost = false;
};

struct ThreadCrew::Shared {
  Function function;
  Pace pace;
  const std::uint64_t generation = fork_generation();
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable ended;
  std::deque<std::shared_ptr<Part>> queue;
  std::vector<std::shared_ptr<Seat>> seats;
  int running = 0;
  bool closed = false;
};

ThreadCrew::ThreadCrew(Function function, int workers,
                       std::chrono::milliseconds timeout)
    : shared_(std::make_shared<Shared>()), workers_(workers), timeout_(timeout) {
  if (workers < 1) {
    throw ArgumentError(text("workers must be at least 1, not ", workers));
  }
  shared_->function = std::move(function);
}

ThreadCrew::~ThreadCrew() { close(); }

void ThreadCrew::close() noexcept {
  Shared& shared = *shared_;
  if (shared.generation != fork_generation()) return;
  std::unique_lock lock(shared.mutex);
  shared.closed = true;
  for (const auto& part : shared.queue) {
    part->job->fail_with(part->work.rows(), part->begin,
                         Closed("the workers were closed"));
  }
  shared.queue.clear();
  shared.wake.notify_all();
  shared.ended.wait_for(lock, kGrace, [&] { return shared.running == 0; });
}

int ThreadCrew::running() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->running;
}

void ThreadCrew::make(const Work& work) {
  Shared& shared = *shared_;
  if (shared.generation != fork_generation()) {
    throw ArgumentError("the threads of this pipeline stayed in the parent process");
  }
  const std::int64_t rows = work.rows();
  if (rows == 0) return;
  if (!work.making.wanted()) throw Cancelled("nobody wants these rows");
  const auto job = std::make_shared<Job>(rows);
  const std::int64_t grain = shared.pace.grain(rows, workers_);
  std::vector<std::shared_ptr<Part>> parts;
  for (std::int64_t begin = 0; begin < rows; begin += grain) {
    auto part = std::make_shared<Part>();
    const std::int64_t count = std::min(grain, rows - begin);
    part->job = job;
    part->begin = begin;
    part->work = work.part(begin, count, part->input, part->output);
    if (timeout_.count() > 0) {
      part->copy = std::make_shared<Copy>(part->work);
      part->copy->work.making = {&part->copy->beside, nullptr, nullptr};
    }
    parts.push_back(std::move(part));
  }
  {
    const std::lock_guard lock(shared.mutex);
    if (shared.closed) throw Closed("the workers were closed");
    hire();  // before anything is queued that would outlive a failure
    shared.queue.insert(shared.queue.end(), parts.begin(), parts.end());
    shared.wake.notify_all();
  }
  work.making.queued();
  while (!job->wait(kGlance)) {
    if (!work.making.wanted()) job->cancel();
    if (timeout_.count() > 0) watch(job);
  }
  job->rethrow();
  for (const auto& part : parts) {
    if (part->copy == nullptr) continue;
    for (std::size_t i = 0; i < part->output.size(); ++i) {
      const Column& to = part->output[i];
      const auto bytes = static_cast<std::size_t>(to.row_bytes());
      for (std::int64_t k = 0; k < part->work.rows(); ++k) {
        std::memcpy(to.row(k), part->copy->output[i].row(k), bytes);
      }
    }
    if (work.making.beside == nullptr) continue;
    for (auto& beside : part->copy->beside.parts()) work.making.beside->add(beside);
  }
}

void ThreadCrew::hire() {
  Shared& shared = *shared_;
  while (shared.running < workers_) {
    const auto seat = std::make_shared<Seat>();
    shared.seats.push_back(seat);
    try {
      std::thread([crew = shared_, seat] { ThreadCrew::work(crew, seat); }).detach();
    } catch (const std::system_error& error) {
      shared.seats.pop_back();
      if (shared.running == 0) {
        throw ThreadError(text("the first of ", workers_, " worker threads"),
                          error.code().message());
      }
      return;  // those that there are will do
    }
    ++shared.running;
  }
}

void ThreadCrew::replace_lost() {
  try {
    hire();
  } catch (const ThreadError& error) {  // nobody is left to make what is queued
    for (const auto& part : std::exchange(shared_->queue, {})) {
      part->job->fail_with(part->work.rows(), part->begin, error);
    }
  }
}

void ThreadCrew::watch(const std::shared_ptr<Job>& job) {
  struct Stalled {
    std::shared_ptr<Part> part;
    std::int64_t row;
    std::uint64_t thread;
    std::chrono::milliseconds most;
  };
  Shared& shared = *shared_;
  std::vector<Stalled> stalled;
  {
    const std::lock_guard lock(shared.mutex);
    const auto now = Clock::now();
    for (const auto& seat : shared.seats) {
      if (seat->part == nullptr || seat->part->job != job) continue;
      const auto most = timeout_ * rows_at_once(seat->seen, seat->part->work.rows());
      const auto taken =
          std::chrono::duration_cast<std::chrono::milliseconds>(now - seat->since);
      if (const std::int64_t row = seat->row.load(); row != seat->seen) {
        seat->seen = row;
        seat->since = now;
      } else if (taken > most) {
        stalled.push_back({seat->part, row, seat->thread, most});
        seat->lost = true;
        --shared.running;
      }
    }
    std::erase_if(shared.seats, [](const auto& seat) { return seat->lost; });
    if (!stalled.empty() && !shared.queue.empty()) replace_lost();
  }
  for (const auto& [part, at, thread, most] : stalled) {
    const std::int64_t row = std::clamp<std::int64_t>(at, 0, part->work.rows() - 1);
    const std::string message =
        text(samples_at(at, part->work.indices), " has taken more than ", most.count(),
             " ms in thread ", thread, "\n", shared.function.whereabouts(thread));
    job->fail_with(part->work.rows(), part->begin + row, WorkerStalled(message));
  }
}

void ThreadCrew::work(const std::shared_ptr<Shared>& shared,
                      const std::shared_ptr<Seat>& seat) {
  pthread_setname_np(pthread_self(), "millstream-call");
  std::unique_lock lock(shared->mutex);
  seat->thread = static_cast<std::uint64_t>(pthread_self());
  while (true) {
    shared->wake.wait(lock, [&] { return !shared->queue.empty() || shared->closed; });
    if (shared->queue.empty()) break;
    const std::shared_ptr<Part> part = std::move(shared->queue.front());
    shared->queue.pop_front();
    seat->part = part;
    seat->row = 0;
    seat->seen = 0;
    const auto start = seat->since = Clock::now();
    lock.unlock();
    std::exception_ptr error;
    std::int64_t row = 0;
    if (part->job->cancelled()) {
      error = std::make_exception_ptr(Cancelled("nobody wants these rows"));
    } else {
      try {
        shared->function.make(part->copy ? part->copy->work : part->work, seat->row);
        shared->pace.note(part->work.rows(), Clock::now() - start);
      } catch (...) {
        error = std::current_exception();
        row = std::clamp<std::int64_t>(seat->row, 0, part->work.rows() - 1);
      }
    }
    lock.lock();
    seat->part = nullptr;
    if (seat->lost) return;  // somebody answered for it already
    lock.unlock();
    if (error) {
      part->job->fail(part->work.rows(), part->begin + row, std::move(error));
    } else {
      part->job->finish(part->work.rows());
    }
    lock.lock();
  }
  --shared->running;
  std::erase(shared->seats, seat);
  shared->ended.notify_all();
}

}  // namespace millstream
