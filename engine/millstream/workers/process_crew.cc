#include "millstream/workers/process_crew.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/workers/desk.h"
#include "millstream/workers/job.h"
#include "millstream/workers/shared_memory.h"

namespace millstream {
namespace {

constexpr std::size_t kStagingKept = 8;

/// Bytes of a staged column, so that the next is aligned; some also for rows of
/// nothing.
std::int64_t staged_bytes(const Column& column, std::int64_t rows) {
  const auto alignment = static_cast<std::int64_t>(kAlignment);
  const std::int64_t bytes = std::max<std::int64_t>(column.row_bytes() * rows, 1);
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Where a column lies if all its rows are in one shared block.
std::optional<Task::Rows> shared(const SharedMemory& memory, const Column& column,
                                 std::int64_t rows) {
  if (column.rows != nullptr || column.stride < 0) return std::nullopt;
  const auto first = memory.place(column.data);
  if (!first) return std::nullopt;
  const std::int64_t end = first->at + (rows - 1) * column.stride + column.row_bytes();
  if (end > first->bytes) return std::nullopt;
  return Task::Rows{*first, column.stride};
}

/// Counts a batch as long as it is being made.
class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count), among_(++count) {}
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  int among() const { return among_; }

 private:
  std::atomic<int>& count_;
  const int among_;
};

void copy(const Column& from, const Column& to, std::int64_t rows) {
  const auto bytes = static_cast<std::size_t>(from.row_bytes());
  for (std::int64_t k = 0; k < rows; ++k) std::memcpy(to.row(k), from.row(k), bytes);
}

}  // namespace

ProcessCrew::ProcessCrew(Launch launch, Options options)
    : launch_(std::move(launch)),
      options_(options),
      memory_(SharedMemory::make()),
      process_(getpid()) {
  if (launch_.command.empty() || launch_.command[0].empty()) {
    throw ArgumentError("worker processes need a command");
  }
  if (options.workers < 1) {
    throw ArgumentError(text("workers must be at least 1, not ", options.workers));
  }
  if (options.timeout.count() < 0 || options.restarts < 0) {
    throw ArgumentError(text("a timeout and restarts are at least 0, not ",
                             options.timeout.count(), " ms and ", options.restarts));
  }
  free_.reserve(kStagingKept);  // giving back must not allocate
}

ProcessCrew::~ProcessCrew() { close(); }

bool ProcessCrew::forked() const noexcept { return getpid() != process_; }

Block ProcessCrew::block(std::int64_t bytes) {
  return forked() ? Block(bytes) : memory_->block(bytes);
}

void ProcessCrew::close() noexcept {
  if (forked()) {  // it has the desk's memory but not its thread, and locks as they
                   // were
    static_cast<void>(new std::shared_ptr<Desk>(std::move(desk_)));
    return;
  }
  std::shared_ptr<Desk> ended;
  std::vector<Block> freed;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    ended = std::move(desk_);
    freed.swap(free_);
  }
  if (ended != nullptr) ended->end();  // also where someone waits, and holds it
}

std::shared_ptr<Desk> ProcessCrew::desk() {
  if (forked()) {
    throw ArgumentError("the worker processes of this pipeline belong to its parent");
  }
  const std::lock_guard lock(mutex_);
  if (closed_) throw Closed("the workers were closed");
  if (desk_ == nullptr) desk_ = std::make_shared<Desk>(launch_, options_, memory_);
  return desk_;
}

std::vector<std::int64_t> ProcessCrew::pids() const {
  if (forked()) return {};
  const std::lock_guard lock(mutex_);
  return desk_ == nullptr ? std::vector<std::int64_t>{} : desk_->pids();
}

Block ProcessCrew::staging(std::int64_t bytes) {
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

void ProcessCrew::give_back(Block block) noexcept {
  const std::lock_guard lock(mutex_);
  const bool kept = !closed_ && free_.size() < kStagingKept;
  if (kept && block.size() > 0) free_.push_back(std::move(block));
}

void ProcessCrew::make(const Work& work) {
  const std::shared_ptr<Desk> crew = desk();
  const std::int64_t rows = work.rows();
  if (rows == 0) return;
  if (!work.making.wanted()) throw Cancelled("nobody wants these rows");

  // Columns that are elsewhere go through a block that is shared.
  std::vector<Task::Rows> places[2];
  std::vector<std::pair<Column, Column>> staged[2];  // as given, as shared
  const std::span<const Column> columns[2] = {work.input, work.output};
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
      auto place = shared(*memory_, column, rows);
      if (!place) {
        Column other{column.dtype, column.shape, block.data() + at, column.row_bytes(),
                     nullptr};
        at += staged_bytes(column, rows);
        place = Task::Rows{memory_->place(other.data).value(), other.stride};
        staged[side].emplace_back(column, other);
        if (side == 0) copy(column, other, rows);
      }
      places[side].push_back(*place);
    }
  }

  const auto job = std::make_shared<Job>(rows);
  const Counted counted(making_);
  const std::int64_t grain = crew->grain(rows, counted.among());
  std::vector<std::shared_ptr<Part>> parts;
  for (std::int64_t begin = 0; begin < rows; begin += grain) {
    const auto count = static_cast<std::size_t>(std::min(grain, rows - begin));
    auto part = std::make_shared<Part>();
    part->job = job;
    part->begin = begin;
    part->beside = work.making.beside;
    part->first = work.first + begin;
    const auto indices = work.indices.subspan(static_cast<std::size_t>(begin), count);
    part->task.indices.assign(indices.begin(), indices.end());
    if (!work.seeds.empty()) {
      const auto seeds = work.seeds.subspan(static_cast<std::size_t>(begin), count);
      part->task.seeds.assign(seeds.begin(), seeds.end());
    }
    part->task.input = places[0];
    part->task.output = places[1];
    for (auto* side : {&part->task.input, &part->task.output}) {
      for (Task::Rows& column : *side) column.place.at += begin * column.stride;
    }
    parts.push_back(std::move(part));
  }
  crew->add(std::move(parts));
  work.making.queued();
  while (!job->wait(kGlance)) {
    if (work.making.wanted()) continue;
    if (work.making.stopped() ? job->stop() : job->cancel()) crew->nudge();
  }
  try {
    job->rethrow();
  } catch (...) {
    give_back(std::move(block));
    throw;
  }
  for (const auto& [given, other] : staged[1]) copy(other, given, rows);
  give_back(std::move(block));
}

}  // namespace millstream
