#include "millstream/source/windows.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/source/arrays.h"
#include "millstream/source/columns.h"
#include "millstream/source/pack.h"
#include "millstream/source/recast.h"

namespace millstream {
namespace {

/// Consecutive samples of a source, and the windows within them.
struct Part {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  SharedSource windows;  // null if there are none
};

SharedSource each_window(const SharedSource& source, std::int64_t length);

/// All windows of a source, from those within its parts. Gathers the others, which
/// cross the border of two parts.
SharedSource joined(const SharedSource& source, std::int64_t length,
                    const std::vector<Part>& parts) {
  std::vector<SharedSource> sources;
  std::int64_t next = 0;  // the first sample of the next window
  const auto gather_until = [&](std::int64_t end) {
    if (next >= end) return;
    sources.push_back(
        std::make_shared<GatheredWindows>(source, length, next, end - next));
  };
  for (const Part& part : parts) {
    if (part.windows == nullptr) continue;
    gather_until(part.begin);
    sources.push_back(part.windows);
    next = part.end - length + 1;
  }
  gather_until(source->size() - length + 1);
  if (sources.size() == 1) return sources.front();
  return std::make_shared<Concatenated>(std::move(sources));
}

/// Null if the rows of an array do not follow each other. Packed arrays are copied, as
/// windows of a copy are quicker to read.
SharedSource windows_of(const ArraysSource& source, std::int64_t length) {
  std::vector<Array> arrays = source.arrays();
  for (Array& array : arrays) {
    if (array.packed) array = unpacked(array);
    if (array.stride != byte_size(array.field)) return nullptr;
    array.field = stacked(array.field, length);
    array.size -= length - 1;
  }
  return std::make_shared<ArraysSource>(std::move(arrays));
}

/// One part for each range of rows that is in one file of every column.
std::vector<Part> parts_of(const ColumnsSource& source, std::int64_t length) {
  std::vector<std::int64_t> borders;
  for (const MappedColumn& column : source.columns()) {
    borders.insert(borders.end(), column.borders().begin(), column.borders().end());
  }
  std::ranges::sort(borders);
  const auto repeated = std::ranges::unique(borders);
  borders.erase(repeated.begin(), repeated.end());
  std::vector<Part> parts;
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    const std::int64_t begin = borders[i];
    const std::int64_t end = borders[i + 1];
    if (end - begin < length) continue;
    std::vector<MappedColumn> columns;
    for (const MappedColumn& column : source.columns()) {
      std::optional<MappedColumn> windows = column.windows(begin, end, length);
      if (!windows) return {};
      columns.push_back(std::move(*windows));
    }
    parts.push_back({begin, end, std::make_shared<ColumnsSource>(std::move(columns))});
  }
  return parts;
}

std::vector<Part> parts_of(const Concatenated& source, std::int64_t length) {
  std::vector<Part> parts;
  std::int64_t begin = 0;
  for (const SharedSource& inner : source.sources()) {
    const std::int64_t end = begin + inner->size();
    parts.push_back(
        {begin, end, end - begin < length ? nullptr : each_window(inner, length)});
    begin = end;
  }
  return parts;
}

/// The same changes to the windows of the inner source; null for transposed fields.
SharedSource windows_of(const Recast& source, std::int64_t length) {
  std::vector<RecastField> fields = source.fields();
  for (RecastField& field : fields) {
    if (field.transposed) return nullptr;
    field.field = stacked(field.field, length);
  }
  return std::make_shared<Recast>(each_window(source.source(), length),
                                  std::move(fields));
}

SharedSource windows_of(const Zipped& source, std::int64_t length) {
  std::vector<SharedSource> sources;
  for (const SharedSource& inner : source.sources()) {
    sources.push_back(each_window(inner, length));
  }
  return std::make_shared<Zipped>(std::move(sources));
}

/// Null unless the subset has neighbouring samples in their own order.
SharedSource windows_of(const Subset& source, std::int64_t length) {
  const std::optional<std::int64_t> start = source.range_start();
  if (!start) return nullptr;
  return std::make_shared<Subset>(each_window(source.source(), length), *start,
                                  source.size() - length + 1);
}

/// The windows that are one sample apart.
SharedSource each_window(const SharedSource& source, std::int64_t length) {
  SharedSource windows;
  if (const auto* arrays = dynamic_cast<const ArraysSource*>(source.get())) {
    windows = windows_of(*arrays, length);
  } else if (const auto* columns = dynamic_cast<const ColumnsSource*>(source.get())) {
    windows = joined(source, length, parts_of(*columns, length));
  } else if (const auto* all = dynamic_cast<const Concatenated*>(source.get())) {
    windows = joined(source, length, parts_of(*all, length));
  } else if (const auto* recast = dynamic_cast<const Recast*>(source.get())) {
    windows = windows_of(*recast, length);
  } else if (const auto* zipped = dynamic_cast<const Zipped*>(source.get())) {
    windows = windows_of(*zipped, length);
  } else if (const auto* subset = dynamic_cast<const Subset*>(source.get())) {
    windows = windows_of(*subset, length);
  }
  return windows != nullptr ? windows : joined(source, length, {});
}

void check(const SharedSource& source, std::int64_t length) {
  if (source == nullptr) throw ArgumentError("a source is missing");
  if (length >= 1 && length <= source->size()) return;
  throw ArgumentError(text("a window over ", source->size(),
                           " samples must have from 1 to ", source->size(),
                           " of them, not ", length));
}

}  // namespace

SharedSource windows(const SharedSource& source, std::int64_t length,
                     std::int64_t stride) {
  check(source, length);
  if (stride < 1) {
    throw ArgumentError(text("windows must be at least 1 sample apart, not ", stride));
  }
  SharedSource each = each_window(source, length);
  if (stride == 1) return each;
  const std::int64_t count = (each->size() - 1) / stride + 1;
  return std::make_shared<Subset>(std::move(each), 0, count, stride);
}

GatheredWindows::GatheredWindows(SharedSource source, std::int64_t length,
                                 std::int64_t first, std::int64_t count)
    : Wrapping(std::move(source)), length_(length), first_(first), count_(count) {
  check(source_, length);
  if (first < 0 || count < 1 || first > source_->size() - length - count + 1) {
    throw ArgumentError(text(count, " windows of ", length, " samples from sample ",
                             first, " on are not within [0, ", source_->size(), ")"));
  }
  for (const Field& field : source_->schema()) {
    schema_.push_back(stacked(field, length));
  }
}

void GatheredWindows::expand(std::span<const std::int64_t> indices,
                             std::span<std::int64_t> samples) const noexcept {
  auto to = samples.begin();
  for (const std::int64_t index : indices) {
    const auto end = to + length_;
    std::iota(to, end, first_ + index);
    to = end;
  }
}

void GatheredWindows::read(const Request& request, Rows& rows) const {
  const auto& [columns, memory] = rows;
  const std::int64_t count = request.rows();
  const auto samples = memory.array<std::int64_t>(count * length_);
  expand(request.indices, samples);
  const auto epochs = memory.array<std::uint32_t>(
      static_cast<std::int64_t>(request.epochs.size()) * length_);
  for (std::size_t i = 0; i < epochs.size(); ++i) {
    epochs[i] = request.epochs[i / static_cast<std::size_t>(length_)];
  }
  const Schema& stored = source_->schema();
  const auto inner = memory.array<Column>(static_cast<std::int64_t>(stored.size()));
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const Column& to = columns[i];
    const DType dtype = to.data == nullptr ? stored[i].dtype : to.dtype;
    const std::int64_t bytes = byte_size(dtype) * stored[i].shape.elements();
    const bool in_place = to.data != nullptr && to.stride == bytes * length_;
    inner[i] = {dtype, stored[i].shape,
                in_place ? to.data : memory.allocate(count * length_ * bytes), bytes,
                nullptr};
  }
  // Host values of single samples have no place in a batch of windows.
  CallContext context = request.context;
  context.host_values = nullptr;
  Rows its_rows{inner, memory};
  source_->read({samples, epochs, request.seed, request.first, context, request.stage},
                its_rows);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const Column& to = columns[i];
    if (inner[i].data == to.data) continue;
    for (std::int64_t k = 0; k < count; ++k) {
      std::byte* const window = inner[i].row(k * length_);
      if (to.data == nullptr) {
        to.rows[k] = window;
      } else {
        std::memcpy(to.row(k), window,
                    static_cast<std::size_t>(inner[i].stride * length_));
      }
    }
  }
}

void GatheredWindows::prepare(std::span<const std::int64_t> indices) const noexcept {
  try {
    std::vector<std::int64_t> samples(indices.size() *
                                      static_cast<std::size_t>(length_));
    expand(indices, samples);
    source_->prepare(samples);
  } catch (const std::bad_alloc&) {
    // Preparing is optional.
  }
}

}  // namespace millstream
