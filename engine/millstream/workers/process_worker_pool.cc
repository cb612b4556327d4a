#include "millstream/workers/process_worker_pool.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/workers/request_progress.h"
#include "millstream/workers/shared_memory.h"
#include "millstream/workers/supervisor.h"

namespace millstream {
namespace {

constexpr std::size_t kStagingKept = 8;

/// The size of a staged column, rounded up so that the next one is aligned. At least
/// one unit, even for empty rows, so that each column has an address of its own.
std::int64_t staged_bytes(const Column& column, std::int64_t rows) {
  const auto alignment = static_cast<std::int64_t>(kAlignment);
  const std::int64_t bytes = std::max<std::int64_t>(column.row_bytes() * rows, 1);
  return (bytes + alignment - 1) / alignment * alignment;
}

/// The location of a column, if all its rows are in one shared block.
std::optional<Task::Rows> shared(const SharedMemory& memory, const Column& column,
                                 std::int64_t rows) {
  if (column.rows != nullptr || column.stride < 0) return std::nullopt;
  const auto first = memory.location(column.data);
  if (!first) return std::nullopt;
  const std::int64_t end = first->at + (rows - 1) * column.stride + column.row_bytes();
  if (end > first->bytes) return std::nullopt;
  return Task::Rows{*first, column.stride};
}

/// Counts a request as long as it is in progress.
class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count), concurrency_(++count) {}
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  int concurrency() const { return concurrency_; }

 private:
  std::atomic<int>& count_;
  const int concurrency_;
};

void copy(const Column& from, const Column& to, std::int64_t rows) {
  const auto bytes = static_cast<std::size_t>(from.row_bytes());
  for (std::int64_t k = 0; k < rows; ++k) std::memcpy(to.row(k), from.row(k), bytes);
}

}  // namespace

ProcessWorkerPool::ProcessWorkerPool(Launch launch, Options options)
    : launch_(std::move(launch)),
      options_(options),
      memory_(SharedMemory::make()),
      process_(getpid()) {
  if (launch_.command.empty() || launch_.command[0].empty()) {
    throw ArgumentError(
        "a pool of worker processes needs the command to run, but it is empty");
  }
  if (options.workers < 1) {
    throw ArgumentError(text("workers must be at least 1, not ", options.workers));
  }
  if (options.timeout.count() < 0 || options.restarts < 0) {
    throw ArgumentError(text("timeout and restarts must be at least 0, not ",
                             options.timeout.count(), " ms and ", options.restarts));
  }
  free_.reserve(kStagingKept);  // because give_back must not allocate
}

ProcessWorkerPool::~ProcessWorkerPool() { close(); }

bool ProcessWorkerPool::forked() const noexcept { return getpid() != process_; }

Block ProcessWorkerPool::block(std::int64_t bytes) {
  return forked() ? Block(bytes) : memory_->block(bytes);
}

void ProcessWorkerPool::close() noexcept {
  if (forked()) {  // there is no supervisor thread here, and its mutex may be locked
    static_cast<void>(new std::shared_ptr<Supervisor>(std::move(supervisor_)));
    return;
  }
  std::shared_ptr<Supervisor> ended;
  std::vector<Block> freed;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    ended = std::move(supervisor_);
    freed.swap(free_);
  }
  if (ended != nullptr) ended->end();  // even if a waiting caller still holds it
}

std::shared_ptr<Supervisor> ProcessWorkerPool::supervisor() {
  if (forked()) {
    throw ArgumentError(
        "a forked process cannot use the worker processes of its parent process: "
        "build the pipeline after the fork");
  }
  const std::lock_guard lock(mutex_);
  if (closed_) throw Closed("the worker pool was closed");
  if (supervisor_ == nullptr)
    supervisor_ = std::make_shared<Supervisor>(launch_, options_, memory_);
  return supervisor_;
}

std::vector<std::int64_t> ProcessWorkerPool::pids() const {
  if (forked()) return {};
  const std::lock_guard lock(mutex_);
  return supervisor_ == nullptr ? std::vector<std::int64_t>{} : supervisor_->pids();
}

Block ProcessWorkerPool::staging(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto fits = std::ranges::find_if(
      free_, [&](const Block& block) { return block.size() >= bytes; });
  if (fits != free_.end()) {
    Block block = std::move(*fits);
    free_.erase(fits);
    return block;
  }
  if (!free_.empty()) free_.erase(free_.begin());  // it is too small
  return memory_->block(
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes))));
}

void ProcessWorkerPool::give_back(Block block) noexcept {
  const std::lock_guard lock(mutex_);
  const bool kept = !closed_ && free_.size() < kStagingKept;
  if (kept && block.size() > 0) free_.push_back(std::move(block));
}

void ProcessWorkerPool::make(const WorkRequest& request) {
  const std::shared_ptr<Supervisor> running = supervisor();
  const std::int64_t rows = request.rows();
  if (rows == 0) return;
  if (!request.context.wanted()) throw Cancelled("the request was cancelled");

  const bool encodes = std::ranges::any_of(
      request.host_values,
      [](const HostValue& value) { return value.object != nullptr; });
  if (encodes) options_.encode(request);

  // Columns outside shared memory are copied through a shared block.
  std::vector<Task::Rows> places[2];
  std::vector<std::pair<Column, Column>>
      staged[2];  // the caller's column, its shared copy
  const std::span<const Column> columns[2] = {request.input, request.output};
  std::int64_t bytes = 0;
  for (const auto& side : columns) {
    for (const Column& column : side) {
      if (!shared(*memory_, column, rows)) bytes += staged_bytes(column, rows);
    }
  }
  Block block = bytes > 0 ? staging(bytes) : Block();
  std::int64_t at = 0;
  for (int side = 0; side < 2; ++side) {
    for (const Column& column : columns[side]) {
      auto location = shared(*memory_, column, rows);
      if (!location) {
        Column other{column.dtype, column.shape, block.data() + at, column.row_bytes(),
                     nullptr};
        at += staged_bytes(column, rows);
        location = Task::Rows{memory_->location(other.data).value(), other.stride};
        staged[side].emplace_back(column, other);
        if (side == 0) copy(column, other, rows);
      }
      places[side].push_back(*location);
    }
  }

  const auto progress = std::make_shared<RequestProgress>(rows);
  const Counted counted(requests_);
  const std::int64_t rows_per_chunk =
      running->rows_per_chunk(rows, counted.concurrency());
  std::vector<std::shared_ptr<Chunk>> chunks;
  for (std::int64_t begin = 0; begin < rows; begin += rows_per_chunk) {
    const auto count = static_cast<std::size_t>(std::min(rows_per_chunk, rows - begin));
    auto chunk = std::make_shared<Chunk>();
    chunk->progress = progress;
    chunk->begin = begin;
    chunk->host_values = request.context.host_values;
    chunk->first = request.first + begin;
    const auto indices =
        request.indices.subspan(static_cast<std::size_t>(begin), count);
    chunk->task.indices.assign(indices.begin(), indices.end());
    if (!request.seeds.empty()) {
      const auto seeds = request.seeds.subspan(static_cast<std::size_t>(begin), count);
      chunk->task.seeds.assign(seeds.begin(), seeds.end());
    }
    chunk->task.input = places[0];
    chunk->task.output = places[1];
    for (auto* side : {&chunk->task.input, &chunk->task.output}) {
      for (Task::Rows& column : *side) column.location.at += begin * column.stride;
    }
    if (!request.host_values.empty()) chunk->task.host_values.resize(count);
    chunks.push_back(std::move(chunk));
  }
  for (HostValue& value : request.host_values) {
    const std::int64_t row = value.row - request.first;
    Task& task = chunks[static_cast<std::size_t>(row / rows_per_chunk)]->task;
    task.host_values[static_cast<std::size_t>(row % rows_per_chunk)] =
        std::move(value.bytes);
  }
  running->add(std::move(chunks));
  request.context.queued();
  while (!progress->wait(kPollInterval)) {
    if (request.context.wanted()) continue;
    if (request.context.stopped() ? progress->stop() : progress->cancel())
      running->wake();
  }
  try {
    progress->rethrow();
  } catch (...) {
    give_back(std::move(block));
    throw;
  }
  for (const auto& [given, other] : staged[1]) copy(other, given, rows);
  give_back(std::move(block));
}

}  // namespace millstream
