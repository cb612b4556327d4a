#include "millstream/loader/loader.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"
#include "millstream/parallel/process.h"
#include "millstream/parallel/thread_pool.h"

namespace millstream {
namespace {

/// Several threads make a batch of at least `kSplitBytes`, in ranges of at most
/// `kRangeBytes`. A smaller batch takes less time than waking a thread.
constexpr std::int64_t kSplitBytes = std::int64_t{1} << 18;
constexpr std::int64_t kRangeBytes = std::int64_t{1} << 16;

/// How long errors are kept for shards that have not asked yet. XLA gives up on a
/// collective operation sooner. If the loader removed an error too early, a late shard
/// would continue without the others.
constexpr std::chrono::seconds kLastShard{60};
/// How often a waiting thread checks whether the loader was cancelled.
constexpr std::chrono::milliseconds kPollInterval{50};
/// How long `remember(nullptr)` waits for the remaining shards, which usually ask
/// within a millisecond.
constexpr std::chrono::milliseconds kShardsTimeout{2000};

Schema with_dtypes(Schema schema, std::span<const DType> dtypes) {
  if (dtypes.size() != schema.size()) {
    throw ArgumentError(text("expected one dtype for each of the ", schema.size(),
                             " fields, found ", dtypes.size()));
  }
  for (std::size_t i = 0; i < schema.size(); ++i) schema[i].dtype = dtypes[i];
  return schema;
}

/// The traits of making batches of `plan` with the dtypes of `schema`.
Traits with_narrowing(const Plan& plan, const Schema& schema) {
  Traits traits = plan.traits();
  for (std::size_t i = 0; i < schema.size(); ++i) {
    traits.may_fail |= is_checked(plan.schema()[i].dtype, schema[i].dtype);
  }
  return traits;
}

int chosen_prefetch(int asked) {
  constexpr int kDefault = 2;
  constexpr int kMost = 1 << 16;
  if (asked > kMost) {
    throw ArgumentError(text("prefetch must be at most ", kMost, ", not ", asked));
  }
  return asked >= 0 ? asked : kDefault;
}

void copy(const Batch& batch, std::size_t shard, std::span<const Column> output,
          bool* mask, std::int64_t rows) {
  for (std::size_t i = 0; i < output.size(); ++i) {
    const Column& from = batch.columns(shard)[i];
    std::memcpy(output[i].data, from.data,
                static_cast<std::size_t>(from.stride * rows));
  }
  if (mask != nullptr) {
    std::memcpy(mask, batch.mask(shard), static_cast<std::size_t>(rows));
  }
}

std::vector<RowRange> checked(std::vector<RowRange> shards, std::int64_t rows) {
  if (shards.empty()) return {{0, rows}};
  for (const RowRange& shard : shards) {
    if (shard.first < 0 || shard.count < 1 || shard.first + shard.count > rows) {
      throw ArgumentError(text("rows [", shard.first, ", ", shard.first + shard.count,
                               ") are outside a batch of ", rows, " rows"));
    }
  }
  return shards;
}

/// Throws `ArgumentError` if the prefetched batches, the one being made and the one in
/// use do not fit in the machine's memory.
void check_fits(const Layout& layout, int prefetch) {
  double row_bytes = 1;  // for the mask
  for (const Field& field : layout.schema()) {
    row_bytes += static_cast<double>(byte_size(field));
  }
  const double batch = row_bytes * static_cast<double>(layout.rows());
  const double memory = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (batch * (prefetch + 2) <= memory) return;
  const auto gigabytes = [](double bytes) {
    return text(std::round(bytes / 1e8) / 10, " GB");
  };
  throw ArgumentError(text("batches of ", layout.rows(), " samples take ",
                           gigabytes(batch), " each, and ", prefetch + 2,
                           " of them (prefetch=", prefetch,
                           " and two more) do not fit in the ", gigabytes(memory),
                           " of memory of this machine: use smaller batches",
                           prefetch > 0 ? " or a smaller prefetch" : ""));
}

}  // namespace

Loader::Loader(std::shared_ptr<const Plan> plan, std::span<const DType> dtypes,
               LoaderOptions options, LocalShards shards)
    : plan_(std::move(plan)),
      slots_(std::make_shared<Slots>(
          Layout(with_dtypes(plan_->schema(), dtypes),
                 checked(std::move(shards.rows), plan_->batch_size())),
          static_cast<std::size_t>(chosen_prefetch(options.prefetch) + 4),
          plan_->worker_pool())),
      traits_(with_narrowing(*plan_, layout().schema())),
      threads_(options.threads > 0 ? options.threads : cpu_budget()),
      prefetch_(chosen_prefetch(options.prefetch)),
      reads_ahead_(prefetch_ > 0 && !plan_->traits().immediate()),
      whole_(layout().shards()[0] == RowRange{0, plan_->batch_size()}),
      skipped_(options.budget),
      answers_(shards.devices) {
  if (options.threads < 0) {
    throw ArgumentError(text("threads must be at least 1, not ", options.threads));
  }
  check_fits(layout(), prefetch_);
  if (prefetch_ > 0) {
    prefetcher_.emplace(plan_, slots_, threads_, prefetch_);
  }
}

void Loader::make(const Position& position, const RowRange& rows,
                  std::span<const Column> output, bool* mask,
                  const CallContext& context) {
  // A prefetcher prepares its batches itself.
  if (!prefetcher_) plan_->prepare(position);
  std::int64_t row_bytes = 1;
  for (const Column& column : output) row_bytes += column.row_bytes();
  if (plan_->traits().workers > 0 || threads_ == 1 ||
      rows.count * row_bytes < kSplitBytes) {
    Memory own;  // a function that this thread calls may use another loader
    const bool calls = context.may_call && plan_->traits().workers > 0;
    plan_->row_range(position, rows.first, rows.count, output, mask,
                     calls ? own : thread_memory(), context);
    return;
  }
  ThreadPool& pool = shared_pool();
  pool.grow(threads_ - 1);
  const std::int64_t half = (rows.count + 1) / 2;
  const std::int64_t most = std::clamp<std::int64_t>(kRangeBytes / row_bytes, 1, half);
  pool.for_ranges(
      rows.count, most, threads_ - 1, [&](std::int64_t begin, std::int64_t end) {
        std::vector<Column> here(output.begin(), output.end());
        for (Column& column : here) column.data += begin * column.stride;
        plan_->row_range(position, rows.first + begin, end - begin, here,
                         mask == nullptr ? nullptr : mask + begin, thread_memory(),
                         {nullptr, context.failures, nullptr});
      });
}

void Loader::write(const DeliveryRequest& request, const RowRange& rows) {
  Failures failures;
  make(request.position, rows, request.output, request.mask,
       {nullptr, &failures, &cancelled_});
  skipped_.count(failures);
}

bool Loader::fits(std::span<const Column> output) const {
  return std::ranges::equal(output, layout().schema(), {}, &Column::dtype,
                            &Field::dtype);
}

std::shared_ptr<const Batch> Loader::prefetched(const DeliveryRequest& request,
                                                bool keep) {
  using Clock = std::chrono::steady_clock;
  if (request.timeout.count() == 0) {
    return prefetcher_->ready(request.position, request.may_call);
  }
  const bool forever = request.timeout == DeliveryRequest::kNoTimeout;
  const bool stays_in_slot = request.output.empty() && !request.shard;
  const auto deadline = Clock::now() + request.timeout;
  while (true) {
    auto left = kPollInterval;
    if (!forever) {
      const auto until =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      left = std::clamp(until, std::chrono::milliseconds(0), kPollInterval);
    }
    auto batch = prefetcher_->get(request.position, keep, left, request.may_call);
    if (!stays_in_slot && cancelled()) throw Cancelled("interrupted");
    if (batch != nullptr || (!forever && Clock::now() >= deadline)) return batch;
  }
}

std::shared_ptr<const Batch> Loader::in_slot(const DeliveryRequest& request,
                                             bool keep) {
  std::shared_ptr<const Batch> batch;
  if (prefetcher_) {
    batch = prefetched(request, keep);
  } else if (request.timeout.count() != 0) {
    auto made = slots_->take();
    const std::span<const RowRange> shards = layout().shards();
    for (std::size_t i = 0; i < shards.size(); ++i) {
      make(request.position, shards[i], made->columns(i), made->mask(i),
           {.host_values = &made->host_values(),
            .failures = &made->failures(),
            .cancelled = &cancelled_,
            .may_call = request.may_call});
    }
    batch = std::move(made);
  }
  if (batch == nullptr) return nullptr;
  skipped_.count(batch->failures());
  count(request);
  return batch;
}

void Loader::count(const DeliveryRequest& request) noexcept {
  const std::int64_t rows = plan_->schedule().valid_rows(request.position);
  if (request.held_back) {
    held_back_.fetch_add(rows, std::memory_order_relaxed);
    return;
  }
  delivered_.fetch_add(1, std::memory_order_relaxed);
  samples_delivered_.fetch_add(rows, std::memory_order_relaxed);
}

void Loader::hand_out(const Position& position) noexcept {
  count({.position = position});
  held_back_.fetch_sub(plan_->schedule().valid_rows(position),
                       std::memory_order_relaxed);
}

Delivered Loader::deliver(const DeliveryRequest& request) {
  if (request.keep) return {!prefetcher_ || prefetched(request, true) != nullptr};
  if (request.shard) return deliver_shard(request);
  if (request.output.empty()) {
    auto batch = in_slot(request, false);
    return {batch != nullptr, std::move(batch)};
  }
  if (cancelled()) throw Cancelled("interrupted");
  const RowRange rows{0, plan_->batch_size()};
  const bool ahead = reads_ahead_ && whole_ && fits(request.output);
  if (ahead && !prefetcher_->is_quick()) {
    const auto batch = in_slot(request, true);
    if (batch == nullptr) return {};
    copy(*batch, 0, request.output, request.mask, rows.count);
    return {true};
  }
  if (!ahead && request.timeout.count() == 0 && !plan_->traits().immediate()) {
    return {};
  }
  const auto start = std::chrono::steady_clock::now();
  write(request, rows);
  if (ahead) prefetcher_->record_time(std::chrono::steady_clock::now() - start);
  count(request);
  return {true};
}

std::size_t Loader::shard_of(const RowRange& rows) const {
  const auto found = std::ranges::find(layout().shards(), rows);
  if (found == layout().shards().end()) {
    throw ArgumentError(text("rows [", rows.first, ", ", rows.first + rows.count,
                             ") are not one of the shards of this process"));
  }
  return static_cast<std::size_t>(found - layout().shards().begin());
}

Delivered Loader::deliver_shard(const DeliveryRequest& request) {
  const std::size_t shard = shard_of(*request.shard);
  const bool stays_in_slot = request.output.empty();
  // If one shard failed alone, the others would wait for it in a collective operation.
  const bool gathers = traits_.immediate() && !traits_.may_fail;
  const auto find = [&]() -> Answers::Found {
    if (cancelled()) throw Cancelled("interrupted");
    if (!stays_in_slot && gathers) {  // each shard writes its own rows
      count(request);
      return nullptr;
    }
    auto batch = in_slot(request, !stays_in_slot);
    if (batch == nullptr) return std::nullopt;
    return batch;
  };
  Answers::Found found =
      answers_.get(request.position, request.timeout.count() != 0, find);
  if (!found) return {};
  if (stays_in_slot) {
    // Null if the first shard that asked writes its own rows.
    if (*found == nullptr) found = find();
    return {found.has_value(), found.value_or(nullptr)};
  }
  if (*found != nullptr && fits(request.output)) {
    copy(**found, shard, request.output, request.mask, request.shard->count);
  } else {
    write(request, *request.shard);
  }
  return {true};
}

void Skipped::count(const Failures& failures) {
  if (failures.samples().empty()) return;
  const std::lock_guard lock(mutex_);
  samples_.insert(failures.samples().begin(), failures.samples().end());
  if (budget_ < 0 || static_cast<std::int64_t>(samples_.size()) <= budget_) return;
  const auto& [sample, why] = *failures.samples().rbegin();
  throw DataError({.sample = sample,
                   .text = text("failed, and more than the allowed ", budget_,
                                " samples have failed: ", why)});
}

std::map<std::int64_t, std::string> Skipped::samples() const {
  const std::lock_guard lock(mutex_);
  return samples_;
}

void Loader::remember(std::exception_ptr error) {
  if (error == nullptr) answers_.forget_errors(kLastShard, kShardsTimeout);
  const std::lock_guard lock(mutex_);
  last_error_ = std::move(error);
}

std::exception_ptr Loader::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

}  // namespace millstream
