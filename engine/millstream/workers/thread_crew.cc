#include "millstream/workers/thread_crew.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/parallel/process.h"
#include "millstream/workers/job.h"

namespace millstream {
namespace {

using Clock = std::chrono::steady_clock;

/// How long closing waits for functions that are running.
constexpr std::chrono::milliseconds kGrace{1000};

}  // namespace

/// Rows in memory that lasts as long as they do.
struct ThreadCrew::Rows {
  Rows(const Work& from, std::int64_t begin, std::int64_t count)
      : memory(from.making.memory) {
    const auto cut = [&](const auto& span) {
      return span.subspan(static_cast<std::size_t>(begin),
                          static_cast<std::size_t>(count));
    };
    const auto these = cut(from.indices);
    indices.assign(these.begin(), these.end());
    if (!from.seeds.empty()) {
      const auto drawn = cut(from.seeds);
      seeds.assign(drawn.begin(), drawn.end());
    }
    for (const Column& column : from.input) {
      add(column, input);
      for (std::int64_t k = 0; k < count; ++k) {
        std::memcpy(input.back().row(k), column.row(begin + k),
                    static_cast<std::size_t>(column.row_bytes()));
      }
    }
    for (const Column& column : from.output) {
      if (memory != nullptr && memory->holds(column.row(begin))) {
        output.push_back(column);
        output.back().data = column.row(begin);
      } else {
        add(column, output);
      }
    }
  }

  void add(const Column& column, std::vector<Column>& to) {
    const std::int64_t bytes = column.row_bytes();
    blocks.emplace_back(bytes * static_cast<std::int64_t>(indices.size()));
    to.push_back({column.dtype, column.shape, blocks.back().data(), bytes, nullptr});
  }
  std::int64_t count() const { return static_cast<std::int64_t>(indices.size()); }

  const std::shared_ptr<const Block> memory;
  std::vector<std::int64_t> indices;
  std::vector<std::uint64_t> seeds;
  std::vector<Block> blocks;
  std::vector<Column> input;
  std::vector<Column> output;
  std::atomic<std::int64_t> row{0};
};

struct ThreadCrew::Part {
  std::shared_ptr<Job> job;
  std::int64_t begin;
  std::shared_ptr<Rows> rows;
  std::int64_t first;
  Beside beside;
  // The rest is guarded by the crew's mutex.
  std::uint64_t thread = 0;
  Clock::time_point since;
  std::int64_t seen = 0;
};

struct ThreadCrew::Shared {
  /// Says whether it was open until now.
  bool stop(std::string because, bool by_stall) {
    if (!why.empty()) return false;
    why = std::move(because);
    stalled = by_stall;
    for (const auto& part : std::exchange(queue, {})) {
      part->job->fail(part->rows->count(), part->begin, refusal());
    }
    wake.notify_all();
    return true;
  }
  std::exception_ptr refusal() const {
    return stalled ? std::make_exception_ptr(WorkerStalled(why))
                   : std::make_exception_ptr(Closed(why));
  }

  Function function;
  Pace pace;
  const std::uint64_t generation = fork_generation();
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable ended;
  std::deque<std::shared_ptr<Part>> queue;
  std::list<std::shared_ptr<Part>> begun;
  int running = 0;
  std::string why;                     // it was closed; empty if it was not
  bool stalled = false;                // that is why
  std::atomic<bool> abandoned{false};  // those who still wait should not
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
  if (shared.stop("the workers were closed", false)) {
    shared.ended.wait_for(lock, kGrace, [&] { return shared.running == 0; });
  }
  shared.abandoned = true;
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
    const std::int64_t count = std::min(grain, rows - begin);
    auto part = std::make_shared<Part>();
    part->job = job;
    part->begin = begin;
    part->rows = std::make_shared<Rows>(work, begin, count);
    part->first = work.first + begin;
    parts.push_back(std::move(part));
  }
  {
    const std::lock_guard lock(shared.mutex);
    if (!shared.why.empty()) std::rethrow_exception(shared.refusal());
    hire();  // before anything is queued that would outlive a failure
    shared.queue.insert(shared.queue.end(), parts.begin(), parts.end());
    shared.wake.notify_all();
  }
  work.making.queued();
  while (!job->wait(kGlance)) {
    if (!work.making.wanted()) {
      job->cancel();
      throw Cancelled("nobody wants these rows");
    }
    if (shared.abandoned) throw Closed("the workers were closed");
    if (timeout_.count() > 0) watch(*job);
  }
  job->rethrow();
  for (const auto& part : parts) {
    for (std::size_t i = 0; i < work.output.size(); ++i) {
      const Column& from = part->rows->output[i];
      const Column& to = work.output[i];
      if (from.data == to.row(part->begin)) continue;
      for (std::int64_t k = 0; k < part->rows->count(); ++k) {
        std::memcpy(to.row(part->begin + k), from.row(k),
                    static_cast<std::size_t>(to.row_bytes()));
      }
    }
    if (work.making.beside == nullptr) continue;
    for (auto& beside : part->beside.parts()) work.making.beside->add(beside);
  }
}

void ThreadCrew::hire() {
  Shared& shared = *shared_;
  while (shared.running < workers_) {
    try {
      std::thread([crew = shared_] { ThreadCrew::work(crew); }).detach();
    } catch (const std::system_error& error) {
      if (shared.running == 0) {
        throw ThreadError(text("the first of ", workers_, " worker threads"),
                          error.code().message());
      }
      return;  // those that there are will do
    }
    ++shared.running;
  }
}

/// Throws where one of the job's rows has taken too long.
void ThreadCrew::watch(const Job& job) {
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  const auto now = Clock::now();
  for (const auto& part : shared.begun) {
    if (part->job.get() != &job) continue;
    const Rows& rows = *part->rows;
    const auto most = timeout_ * rows_at_once(part->seen, rows.count());
    if (const std::int64_t row = rows.row.load(); row != part->seen) {
      part->seen = row;
      part->since = now;
    } else if (now - part->since > most) {
      const std::string who =
          text(samples_at(row, rows.indices), " has taken more than ", most.count(),
               " ms in thread ", part->thread);
      const std::uint64_t thread = part->thread;
      shared.stop(
          text("the workers were closed, because ", who,
               " and a thread cannot be stopped. Build the source and its loader "
               "again, or use worker_kind=\"process\": a process is replaced"),
          true);
      lock.unlock();
      throw WorkerStalled(text(who, "\n", shared.function.whereabouts(thread)));
    }
  }
}

void ThreadCrew::work(const std::shared_ptr<Shared>& shared) {
  pthread_setname_np(pthread_self(), "millstream-call");
  std::unique_lock lock(shared->mutex);
  while (true) {
    shared->wake.wait(lock,
                      [&] { return !shared->queue.empty() || !shared->why.empty(); });
    if (shared->queue.empty()) break;
    std::shared_ptr<Part> part = std::move(shared->queue.front());
    shared->queue.pop_front();
    const auto start = part->since = Clock::now();
    part->thread = static_cast<std::uint64_t>(pthread_self());
    const auto place = shared->begun.insert(shared->begun.end(), part);
    lock.unlock();
    Rows& rows = *part->rows;
    std::exception_ptr error;
    try {
      if (part->job->cancelled()) throw Cancelled("nobody wants these rows");
      const Making making{&part->beside, nullptr, nullptr};
      shared->function.make(
          {rows.indices, rows.seeds, rows.input, rows.output, making, part->first},
          rows.row, part->rows);
      shared->pace.note(rows.count(), Clock::now() - start);
    } catch (...) {
      error = std::current_exception();
    }
    const std::int64_t count = rows.count();
    const std::int64_t row =
        part->begin + std::clamp<std::int64_t>(rows.row, 0, count - 1);
    const std::shared_ptr<Job> job = part->job;
    lock.lock();
    shared->begun.erase(place);
    lock.unlock();
    part.reset();  // who waits is the last to hold it
    if (error) {
      job->fail(count, row, std::move(error));
    } else {
      job->finish(count);
    }
    lock.lock();
  }
  --shared->running;
  shared->ended.notify_all();
}

}  // namespace millstream
