#include "millstream/workers/thread_worker_pool.h"

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
#include "millstream/workers/chunk_size.h"
#include "millstream/workers/current_row.h"
#include "millstream/workers/request_progress.h"

namespace millstream {
namespace {

using Clock = std::chrono::steady_clock;

/// How long `close` waits for running functions.
constexpr std::chrono::milliseconds kGrace{1000};

}  // namespace

/// The rows of a chunk. Owns or keeps alive the memory that the function reads and
/// writes.
struct ThreadWorkerPool::ChunkRows {
  ChunkRows(const WorkRequest& from, std::int64_t begin, std::int64_t count)
      : memory(from.context.memory) {
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
  std::vector<HostValue> host_values;  // of the input
  std::atomic<std::int64_t> row{0};
};

struct ThreadWorkerPool::Chunk {
  std::shared_ptr<RequestProgress> progress;
  std::int64_t begin;
  std::shared_ptr<ChunkRows> rows;
  std::int64_t first;
  HostValues host_values;
  // The rest is guarded by the pool's mutex.
  std::uint64_t thread = 0;
  Clock::time_point since;
  std::int64_t last_row = 0;
};

struct ThreadWorkerPool::Shared {
  explicit Shared(bool whole) : chunk_size(whole) {}

  /// Closes the pool and fails the queued chunks. Returns false if it was closed
  /// already. The caller holds the mutex.
  bool stop(std::string reason, bool by_stall) {
    if (!close_reason.empty()) return false;
    close_reason = std::move(reason);
    stalled = by_stall;
    for (const auto& chunk : std::exchange(queue, {})) {
      chunk->progress->fail(chunk->rows->count(), chunk->begin, close_error());
    }
    wake.notify_all();
    return true;
  }
  std::exception_ptr close_error() const {
    return stalled ? std::make_exception_ptr(WorkerStalled(close_reason))
                   : std::make_exception_ptr(Closed(close_reason));
  }

  Function function;
  ChunkSize chunk_size;
  const std::uint64_t generation = fork_generation();
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable ended;
  std::deque<std::shared_ptr<Chunk>> queue;
  std::list<std::shared_ptr<Chunk>> begun;
  int running = 0;
  bool lent = false;                   // a caller of `make` calls the function
  std::string close_reason;            // empty while the pool is open
  bool stalled = false;                // closed because a function stalled
  std::atomic<bool> abandoned{false};  // callers stop waiting
};

ThreadWorkerPool::ThreadWorkerPool(Function function, int workers,
                                   std::chrono::milliseconds timeout, bool whole)
    : shared_(std::make_shared<Shared>(whole)), workers_(workers), timeout_(timeout) {
  if (workers < 1) {
    throw ArgumentError(text("workers must be at least 1, not ", workers));
  }
  shared_->function = std::move(function);
}

ThreadWorkerPool::~ThreadWorkerPool() { close(); }

void ThreadWorkerPool::close() noexcept {
  Shared& shared = *shared_;
  if (shared.generation != fork_generation()) return;
  std::unique_lock lock(shared.mutex);
  if (shared.stop("the worker pool was closed", false)) {
    shared.ended.wait_for(lock, kGrace, [&] { return shared.running == 0; });
  }
  shared.abandoned = true;
}

void ThreadWorkerPool::make(const WorkRequest& request) {
  Shared& shared = *shared_;
  if (shared.generation != fork_generation()) {
    throw ArgumentError(
        "a forked process cannot use the worker threads of its parent process: build "
        "the pipeline after the fork");
  }
  const std::int64_t rows = request.rows();
  if (rows == 0) return;
  if (!request.context.wanted()) throw Cancelled("the request was cancelled");
  const auto progress = std::make_shared<RequestProgress>(rows);
  const std::int64_t rows_per_chunk = shared.chunk_size.rows_per_chunk(rows, workers_);
  std::vector<std::shared_ptr<Chunk>> chunks;
  for (std::int64_t begin = 0; begin < rows; begin += rows_per_chunk) {
    const std::int64_t count = std::min(rows_per_chunk, rows - begin);
    auto chunk = std::make_shared<Chunk>();
    chunk->progress = progress;
    chunk->begin = begin;
    chunk->rows = std::make_shared<ChunkRows>(request, begin, count);
    chunk->first = request.first + begin;
    chunks.push_back(std::move(chunk));
  }
  for (HostValue& value : request.host_values) {
    const std::int64_t chunk = (value.row - request.first) / rows_per_chunk;
    chunks[static_cast<std::size_t>(chunk)]->rows->host_values.push_back(
        std::move(value));
  }
  std::unique_lock lock(shared.mutex);
  if (!shared.close_reason.empty()) std::rethrow_exception(shared.close_error());
  if (request.context.may_call && lends_function() && !shared.lent &&
      shared.queue.empty() && shared.begun.empty()) {
    shared.lent = true;
    for (const auto& chunk : chunks) {
      if (!run_chunk(shared, lock, chunk)) progress->cancel();
    }
    shared.lent = false;
    if (!shared.queue.empty()) shared.wake.notify_one();
    lock.unlock();
  } else {
    start_threads();  // before queueing, because it may throw
    shared.queue.insert(shared.queue.end(), chunks.begin(), chunks.end());
    shared.wake.notify_all();
    lock.unlock();
    request.context.queued();
  }
  while (!progress->wait(kPollInterval)) {
    if (!request.context.wanted()) {
      progress->cancel();
      throw Cancelled("the request was cancelled");
    }
    if (shared.abandoned) throw Closed("the worker pool was closed");
    if (timeout_.count() > 0) check_timeouts(*progress);
  }
  progress->rethrow();
  for (const auto& chunk : chunks) {
    for (std::size_t i = 0; i < request.output.size(); ++i) {
      const Column& from = chunk->rows->output[i];
      const Column& to = request.output[i];
      if (from.data == to.row(chunk->begin)) continue;
      for (std::int64_t k = 0; k < chunk->rows->count(); ++k) {
        std::memcpy(to.row(chunk->begin + k), from.row(k),
                    static_cast<std::size_t>(to.row_bytes()));
      }
    }
    if (request.context.host_values == nullptr) continue;
    request.context.host_values->add(chunk->host_values.take());
  }
}

void ThreadWorkerPool::start_threads() {
  Shared& shared = *shared_;
  while (shared.running < workers_) {
    try {
      std::thread([pool = shared_] { ThreadWorkerPool::run_thread(pool); }).detach();
    } catch (const std::system_error& error) {
      if (shared.running == 0) {
        throw ThreadError(text("the first of ", workers_, " worker threads"),
                          error.code().message());
      }
      return;  // fewer threads are enough
    }
    ++shared.running;
  }
}

/// Throws `WorkerStalled` and closes the pool if a row of the request takes longer than
/// the timeout.
void ThreadWorkerPool::check_timeouts(const RequestProgress& progress) {
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  const auto now = Clock::now();
  for (const auto& chunk : shared.begun) {
    if (chunk->progress.get() != &progress) continue;
    const ChunkRows& rows = *chunk->rows;
    const auto most = timeout_ * current_row_count(chunk->last_row, rows.count());
    if (const std::int64_t row = rows.row.load(); row != chunk->last_row) {
      chunk->last_row = row;
      chunk->since = now;
    } else if (now - chunk->since > most) {
      const auto sample = current_sample(row, rows.indices);
      const std::string slow =
          text("has taken more than ", most.count(), " ms in thread ", chunk->thread);
      const std::string who = text(current_samples(row, rows.indices), " ", slow);
      const std::uint64_t thread = chunk->thread;
      shared.stop(
          text("the worker pool was closed, because ", who,
               " and a thread cannot be stopped. Build the source and its loader "
               "again, or use worker_kind=\"process\", which replaces stalled "
               "processes"),
          true);
      lock.unlock();
      throw WorkerStalled(
          {.sample = sample,
           .text = text(sample ? slow : who, "\n", shared.function.stack_of(thread))});
    }
  }
}

bool ThreadWorkerPool::run_chunk(Shared& shared, std::unique_lock<std::mutex>& lock,
                                 std::shared_ptr<Chunk> chunk) {
  const auto start = chunk->since = Clock::now();
  chunk->thread = static_cast<std::uint64_t>(pthread_self());
  const auto place = shared.begun.insert(shared.begun.end(), chunk);
  lock.unlock();
  ChunkRows& rows = *chunk->rows;
  std::exception_ptr error;
  try {
    if (chunk->progress->cancelled()) throw Cancelled("the request was cancelled");
    const CallContext context{&chunk->host_values, nullptr, nullptr};
    shared.function.make({rows.indices, rows.seeds, rows.input, rows.output, context,
                          chunk->first, rows.host_values},
                         rows.row, chunk->rows);
    shared.chunk_size.record(rows.count(), Clock::now() - start);
  } catch (...) {
    error = std::current_exception();
  }
  const bool made = error == nullptr;
  const std::int64_t count = rows.count();
  const std::int64_t row =
      chunk->begin + std::clamp<std::int64_t>(rows.row, 0, count - 1);
  const std::shared_ptr<RequestProgress> progress = chunk->progress;
  lock.lock();
  shared.begun.erase(place);
  lock.unlock();
  chunk.reset();  // the caller of `make` must hold the last reference
  if (made) {
    progress->finish(count);
  } else {
    progress->fail(count, row, std::move(error));
  }
  lock.lock();
  return made;
}

void ThreadWorkerPool::run_thread(const std::shared_ptr<Shared>& shared) {
  pthread_setname_np(pthread_self(), "millstream-call");
  std::unique_lock lock(shared->mutex);
  while (true) {
    shared->wake.wait(lock, [&] {
      return !shared->close_reason.empty() || (!shared->queue.empty() && !shared->lent);
    });
    if (shared->queue.empty()) break;
    std::shared_ptr<Chunk> chunk = std::move(shared->queue.front());
    shared->queue.pop_front();
    run_chunk(*shared, lock, std::move(chunk));
  }
  --shared->running;
  shared->ended.notify_all();
}

}  // namespace millstream
