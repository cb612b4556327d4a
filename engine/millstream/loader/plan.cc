#include "millstream/loader/plan.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/core/float_mode.h"

namespace millstream {
namespace {

Transforms joined(Transforms first, const Transforms& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// The same columns from row `first` on.
Rows from_row(const Rows& rows, std::int64_t first) {
  const auto later =
      rows.memory.array<Column>(static_cast<std::int64_t>(rows.columns.size()));
  std::ranges::copy(rows.columns, later.begin());
  for (Column& column : later) column.data += first * column.stride;
  return {later, rows.memory};
}

/// A batch of at least this many bytes leaves the CPU's caches before a step uses it.
constexpr std::int64_t kLargeBatch = std::int64_t{8} << 20;

/// How often a transient failure is tried in all, if failures are skipped.
constexpr int kTries = 3;

template <typename Body>
void with_retries(int times, Body&& body) {
  while (true) {
    --times;
    try {
      return body();
    } catch (const WorkerDied&) {
      if (times == 0) throw;
    } catch (const WorkerStalled&) {
      if (times == 0) throw;
    } catch (const IoError& error) {
      if (times == 0 || error.code() != EIO) throw;
    } catch (const FunctionError& error) {
      if (times == 0 || !error.transient()) throw;
    }
  }
}

}  // namespace

Plan::Plan(std::shared_ptr<const Source> source, Schedule schedule, Transforms before,
           Transforms after, bool skip, std::uint64_t filter)
    : source_(std::move(source)),
      schedule_(std::move(schedule)),
      chain_(source_->schema(), joined(before, after), {},
             source_->traits().function_numbers),
      tail_(Chain(source_->schema(), before).output(), after, before,
            source_->traits().function_numbers),
      skip_(skip),
      traits_(combined(source_->traits(), chain_.traits())),
      worker_pool_(source_->worker_pool()) {
  for (const auto& stage : joined(before, after)) {
    if (stage->worker_pool() != nullptr) worker_pool_ = stage->worker_pool();
  }
  if (schedule_.order().samples() != source_->size()) {
    throw ArgumentError(text("the order is for ", schedule_.order().samples(),
                             " samples, but the source has ", source_->size()));
  }
  Digest digest;
  digest.add(source_->size());
  for (const Field& field : source_->schema()) {
    digest.add(field.name).add(static_cast<std::int64_t>(field.dtype));
    digest.add(static_cast<std::int64_t>(field.shape.rank()));
    for (const std::int64_t extent : field.shape.extents()) digest.add(extent);
    sample_bytes_ += byte_size(field);
  }
  std::int64_t row_bytes = 0;
  for (const Field& field : schema()) row_bytes += byte_size(field);
  large_ = row_bytes >= (kLargeBatch + batch_size() - 1) / batch_size();
  if (filter != 0) digest.add("filter").add(filter);
  schedule_.add_to(digest);
  digest_ = digest.value();
}

void Plan::batch(const Position& position, std::span<const Column> output, bool* mask,
                 const CallContext& context) const {
  rows(position, 0, batch_size(), output, mask, thread_memory(), context);
}

void Plan::rows(const Position& position, std::int64_t first, std::int64_t count,
                std::span<const Column> output, bool* mask, Memory& memory,
                const CallContext& context) const {
  row_range(position, first, count, from_row({output, memory}, first).columns,
            mask == nullptr ? nullptr : mask + first, memory, context);
}

void Plan::row_range(const Position& position, std::int64_t first, std::int64_t count,
                     std::span<const Column> output, bool* mask, Memory& memory,
                     const CallContext& context) const {
  const ExactFloats exact;
  const auto indices = memory.array<std::int64_t>(count);
  schedule_.run(position, first, indices);
  const std::int64_t valid =
      std::clamp<std::int64_t>(schedule_.valid_rows(position) - first, 0, count);
  if (mask != nullptr) {
    for (std::int64_t k = 0; k < count; ++k) mask[k] = k < valid;
  }
  const auto epochs = memory.array<std::uint32_t>(valid);
  schedule_.epochs(position, first, epochs);
  const Request request = {indices.first(epochs.size()), epochs, position.seed, first,
                           context};
  const auto columns = memory.array<Column>(std::ssize(output));
  std::ranges::copy(output, columns.begin());
  for (Column& column : columns) column.large = large_;
  Rows rows{columns, memory};
  if (valid > 0 && skip_) {
    rows_skipping_failures(position, request, rows, mask);
  } else if (valid > 0) {
    valid_rows(request, rows);
  }
  if (valid < count) {
    Rows rest = from_row(rows, valid);
    padding(position, count - valid, rest);
  }
}

void Plan::rows_skipping_failures(const Position& position, const Request& request,
                                  Rows& output, bool* mask) const {
  const auto skip = [&](const Error& error) {
    padding(position, 1, output);
    if (mask != nullptr) *mask = false;
    Failures* failures = request.context.failures;
    if (failures != nullptr) failures->add(request.indices[0], error);
  };
  try {
    with_retries(kTries, [&] { valid_rows(request, output); });
    return;
  } catch (const DataError& error) {
    if (request.rows() == 1) return skip(error);
  } catch (const FunctionError& error) {
    if (error.sample() < 0 || error.transient()) throw;
    if (request.rows() == 1) return skip(error);
  }
  // Splits in halves, so that most rows are still made together if only a few fail.
  const std::size_t half = request.indices.size() / 2;
  const auto rows = static_cast<std::int64_t>(half);
  rows_skipping_failures(position, request.slice(0, half), output, mask);
  Rows rest = from_row(output, rows);
  rows_skipping_failures(position, request.slice(half, request.indices.size() - half),
                         rest, mask == nullptr ? nullptr : mask + rows);
}

void Plan::valid_rows(const Request& request, Rows& output) const {
  const Schema& schema = source_->schema();
  Memory& memory = output.memory;
  const std::int64_t count = request.rows();
  const auto columns = memory.array<Column>(static_cast<std::int64_t>(schema.size()));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const int target = chain_.output_of(static_cast<int>(i));
    columns[i] = {schema[i].dtype, schema[i].shape, nullptr, 0, nullptr};
    if (target >= 0) {
      const Column& given = output.columns[static_cast<std::size_t>(target)];
      // The source may convert the dtype while it copies, unless a stage needs the
      // original dtype.
      if (given.dtype == schema[i].dtype || !chain_.makes()) {
        columns[i].dtype = given.dtype;
        columns[i].data = given.data;
        columns[i].stride = given.stride;
        continue;
      }
    }
    columns[i].rows = memory.array<std::byte*>(count).data();
  }
  samples_read_.fetch_add(count, std::memory_order_relaxed);
  Rows samples{columns, memory};
  // Stages may need host values that the caller does not want. A call that fails must
  // not leave any behind.
  HostValues host_values;
  CallContext context = request.context;
  context.host_values = &host_values;
  const Request inner = {request.indices, request.epochs, request.seed, request.first,
                         context};
  source_->read(inner, samples);
  chain_.run(inner, samples, output);
  if (request.context.host_values != nullptr) {
    request.context.host_values->add(host_values.take());
  }
}

void Plan::padding(const Position& position, std::int64_t count, Rows& output) const {
  const Schema& schema = tail_.input();
  Memory& memory = output.memory;
  const auto columns = memory.array<Column>(static_cast<std::int64_t>(schema.size()));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::int64_t bytes = byte_size(schema[i]);
    std::byte* zeros = memory.allocate(bytes);
    std::memset(zeros, 0, static_cast<std::size_t>(bytes));
    columns[i] = {schema[i].dtype, schema[i].shape, zeros, 0, nullptr};
  }
  const auto indices = memory.array<std::int64_t>(count);
  std::ranges::fill(indices, -1);
  const auto epochs = memory.array<std::uint32_t>(count);
  std::ranges::fill(epochs, position.epoch);
  tail_.run({indices, epochs, position.seed}, {columns, memory}, output);
}

void Plan::prepare(const Position& position) const {
  if (!source_->traits().waits) return;
  Memory memory;
  const auto indices = memory.array<std::int64_t>(schedule_.valid_rows(position));
  schedule_.run(position, 0, indices);
  source_->prepare(indices);
}

}  // namespace millstream
