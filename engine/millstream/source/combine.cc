#include "millstream/source/combine.h"

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <utility>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"

namespace millstream {
namespace {

/// The limit on the bytes of one source that are read before they are copied to the
/// batch.
constexpr std::int64_t kLent = std::int64_t{1} << 22;

/// Calls `prepare` with translated indices, in pieces on the stack, because it must not
/// throw.
template <typename Index>
void prepare_translated(const Source& source, std::span<const std::int64_t> indices,
                        const Index& index) noexcept {
  std::array<std::int64_t, 512> inner;
  while (!indices.empty()) {
    const std::size_t count = std::min(indices.size(), inner.size());
    std::transform(indices.begin(),
                   indices.begin() + static_cast<std::ptrdiff_t>(count), inner.begin(),
                   index);
    source.prepare(std::span(inner).first(count));
    indices = indices.subspan(count);
  }
}

/// The same request with translated indices.
template <typename Index>
Request translated(Request request, Memory& memory, const Index& index) {
  const auto inner = memory.array<std::int64_t>(request.rows());
  std::ranges::transform(request.indices, inner.begin(), index);
  request.indices = inner;
  return request;
}

}  // namespace

Combined::Combined(std::vector<SharedSource> sources) : sources_(std::move(sources)) {
  if (sources_.empty())
    throw ArgumentError("a combined source needs at least one source");
  for (const SharedSource& source : sources_) {
    if (source == nullptr) throw ArgumentError("a source is missing");
    traits_ = combined(traits_, source->traits());
    if (worker_pool_ == nullptr) worker_pool_ = source->worker_pool();
  }
}

Wrapping::Wrapping(SharedSource source) : source_(std::move(source)) {
  if (source_ == nullptr) throw ArgumentError("a source is missing");
}

Concatenated::Concatenated(std::vector<SharedSource> sources)
    : Combined(std::move(sources)) {
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = *sources_[i];
    if (source.schema() != schema()) {
      throw ArgumentError(text(
          "sources to be concatenated must have the same schema: ", "source 0 has ",
          str(schema()), ", source ", i, " has ", str(source.schema())));
    }
    std::int64_t samples = 0;
    if (__builtin_add_overflow(first_.back(), source.size(), &samples)) {
      throw ArgumentError(
          text("sources to be concatenated must have fewer than 2^63 "
               "samples in all: source ",
               i, " has ", source.size(), " more than ", first_.back()));
    }
    first_.push_back(samples);
  }
}

std::size_t Concatenated::source_of(std::int64_t index) const noexcept {
  const auto after = std::upper_bound(first_.begin() + 1, first_.end(), index);
  return static_cast<std::size_t>(after - first_.begin()) - 1;
}

void Concatenated::read(const Request& request, Rows& rows) const {
  const auto& [columns, memory] = rows;
  const std::span<const std::int64_t> indices = request.indices;
  if (indices.empty()) return;
  const auto [least, most] = std::ranges::minmax(indices);
  const std::size_t only = source_of(least);
  if (most < first_[only + 1]) {
    const Request inner = translated(
        request, memory,
        [begin = first_[only]](std::int64_t index) { return index - begin; });
    return sources_[only]->read(inner, rows);
  }

  // A linked list of rows for each source: `heads` has the first row, `next` the
  // following.
  constexpr std::int64_t kNone = -1;
  const std::int64_t count = request.rows();
  const auto heads =
      memory.array<std::int64_t>(static_cast<std::int64_t>(sources_.size()));
  const auto next = memory.array<std::int64_t>(count);
  std::ranges::fill(heads, kNone);
  for (std::int64_t k = count - 1; k >= 0; --k) {
    const auto row = static_cast<std::size_t>(k);
    std::int64_t& head = heads[source_of(indices[row])];
    next[row] = std::exchange(head, k);
  }

  const Schema& fields = schema();
  const auto places = memory.array<std::int64_t>(count);
  const auto inner = memory.array<std::int64_t>(count);
  const auto epochs =
      memory.array<std::uint32_t>(static_cast<std::int64_t>(request.epochs.size()));
  const auto lent = memory.array<Column>(static_cast<std::int64_t>(fields.size()));
  std::int64_t row_bytes = 1;
  bool copies = true;  // all columns are copied, so no view has to stay valid
  for (std::size_t i = 0; i < fields.size(); ++i) {
    row_bytes += byte_size(fields[i]);
    copies = copies && columns[i].data != nullptr;
    lent[i] = {fields[i].dtype, fields[i].shape, nullptr, 0,
               memory.array<std::byte*>(count).data()};
  }
  // A worker pool gets all rows at once, so that it can distribute them.
  const auto rows_per_read =
      copies && traits().workers == 0
          ? static_cast<std::size_t>(std::max<std::int64_t>(1, kLent / row_bytes))
          : indices.size();
  for (std::size_t source = 0; source < sources_.size(); ++source) {
    std::size_t taken = 0;
    for (std::int64_t k = heads[source]; k != kNone;
         k = next[static_cast<std::size_t>(k)]) {
      const auto row = static_cast<std::size_t>(k);
      places[taken] = k;
      if (!epochs.empty()) epochs[taken] = request.epochs[row];
      inner[taken++] = indices[row] - first_[source];
    }
    if (taken == 0) continue;
    Memory scratch;
    for (std::size_t begin = 0; begin < taken; begin += rows_per_read) {
      const std::size_t some = std::min(rows_per_read, taken - begin);
      const auto its_rows = places.subspan(begin, some);
      const auto samples = inner.subspan(begin, some);
      HostValues host_values;
      CallContext context = request.context;
      if (context.host_values != nullptr) context.host_values = &host_values;
      scratch.reset();
      Rows some_rows{lent, some == taken ? memory : scratch};
      const Request its_request = {
          samples, epochs.empty() ? epochs : epochs.subspan(begin, some), request.seed,
          0, context};
      sources_[source]->read(its_request, some_rows);
      if (context.host_values != nullptr) {
        std::vector<HostValue> values = host_values.take();
        for (HostValue& value : values) {
          value.row = request.first + its_rows[static_cast<std::size_t>(value.row)];
        }
        request.context.host_values->add(std::move(values));
      }
      for (std::size_t i = 0; i < fields.size(); ++i) {
        const Column& to = columns[i];
        const std::int64_t elements = fields[i].shape.elements();
        const Convert convert = converter(fields[i].dtype, to.dtype);
        for (std::size_t k = 0; k < some; ++k) {
          if (to.data == nullptr) {
            to.rows[its_rows[k]] = lent[i].rows[k];
          } else if (convert(lent[i].rows[k], to.row(its_rows[k]), elements) !=
                     elements) {
            refuse(source, its_request.slice(k, 1), columns, memory);
          }
        }
      }
    }
  }
}

void Concatenated::refuse(std::size_t source, const Request& request,
                          std::span<const Column> columns, Memory& memory) const {
  const auto into = memory.array<Column>(static_cast<std::int64_t>(columns.size()));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Field& field = schema()[i];
    const DType dtype = columns[i].data == nullptr ? field.dtype : columns[i].dtype;
    const std::int64_t bytes = byte_size(dtype) * field.shape.elements();
    into[i] = {dtype, field.shape, memory.allocate(bytes), bytes, nullptr};
  }
  // Read the sample again with its own source, whose error names the file.
  Rows rows{into, memory};
  sources_[source]->read(request, rows);
  throw DataError({.sample = request.indices[0],
                   .text = text("of source ", source,
                                " holds a value that the dtype of its batch cannot "
                                "hold")});
}

void Concatenated::prepare(std::span<const std::int64_t> indices) const noexcept {
  try {
    std::vector<std::int64_t> sorted(indices.begin(), indices.end());
    std::sort(sorted.begin(), sorted.end());
    for (auto begin = sorted.begin(); begin != sorted.end();) {
      const std::size_t source = source_of(*begin);
      const auto end = std::lower_bound(begin, sorted.end(), first_[source + 1]);
      prepare_translated(
          *sources_[source], {begin, end},
          [first = first_[source]](std::int64_t index) { return index - first; });
      begin = end;
    }
  } catch (const std::bad_alloc&) {
    // Preparing is optional.
  }
}

Subset::Subset(SharedSource source, std::vector<std::int64_t> samples)
    : Wrapping(std::move(source)),
      samples_(std::move(samples)),
      size_(static_cast<std::int64_t>(samples_.size())) {
  if (samples_.empty()) throw ArgumentError("a subset needs at least one sample");
  for (std::size_t k = 0; k < samples_.size(); ++k) {
    if (samples_[k] >= 0 && samples_[k] < source_->size()) continue;
    throw ArgumentError(text("sample ", samples_[k], " at position ", k,
                             " of a subset is not within [0, ", source_->size(), ")"));
  }
}

Subset::Subset(SharedSource source, std::int64_t start, std::int64_t size,
               std::int64_t step)
    : Wrapping(std::move(source)), size_(size), start_(start), step_(step) {
  std::int64_t last = 0;
  const std::int64_t count = source_->size();
  const bool exists = size > 0 && !__builtin_mul_overflow(size - 1, step, &last) &&
                      !__builtin_add_overflow(last, start, &last) && start >= 0 &&
                      start < count && last >= 0 && last < count;
  if (!exists) {
    throw ArgumentError(text("a slice of ", size, " samples from ", start, " by ", step,
                             " is not within [0, ", count, ")"));
  }
}

void Subset::read(const Request& request, Rows& rows) const {
  source_->read(translated(request, rows.memory,
                           [this](std::int64_t index) { return sample(index); }),
                rows);
}

void Subset::prepare(std::span<const std::int64_t> indices) const noexcept {
  prepare_translated(*source_, indices,
                     [this](std::int64_t index) { return sample(index); });
}

Zipped::Zipped(std::vector<SharedSource> sources) : Combined(std::move(sources)) {
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = *sources_[i];
    if (source.size() != size()) {
      throw ArgumentError(
          text("sources to be zipped must have the same size: source 0 has ", size(),
               " samples, source ", i, " has ", source.size()));
    }
    for (const Field& field : source.schema()) {
      for (const Field& other : schema_) {
        if (field.name != other.name) continue;
        throw ArgumentError(text("two zipped sources have a field '", field.name,
                                 "': rename one of them"));
      }
      schema_.push_back(field);
    }
  }
}

void Zipped::read(const Request& request, Rows& rows) const {
  // Host values have no field names, so those of several sources could not be told
  // apart.
  CallContext context = request.context;
  context.host_values = nullptr;
  const Request inner = {request.indices, request.epochs, request.seed, request.first,
                         context};
  std::span<const Column> columns = rows.columns;
  for (const SharedSource& source : sources_) {
    const std::size_t fields = source->schema().size();
    Rows its_rows{columns.first(fields), rows.memory};
    source->read(inner, its_rows);
    columns = columns.subspan(fields);
  }
}

void Zipped::prepare(std::span<const std::int64_t> indices) const noexcept {
  for (const SharedSource& source : sources_) source->prepare(indices);
}

}  // namespace millstream
