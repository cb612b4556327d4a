#include "millstream/source/mapped_column.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"
#include "millstream/source/gather.h"
#include "millstream/source/rearrange.h"

namespace millstream {
namespace {

/// Rows of at least this many bytes are read by `pread`. Smaller rows are copied from
/// the map, which is up to 8 times as fast for small rows (`read_benchmark.cc`).
constexpr std::int64_t kPositioned = std::int64_t{1} << 19;
/// Ranges that are closer than this are hinted as one.
constexpr std::int64_t kGap = std::int64_t{1} << 14;
/// For rows of at least this many bytes the kernel's own read-ahead is disabled: rows
/// are read in random order, and the prefetcher hints which ones come next.
constexpr std::int64_t kRandomRowBytes = std::int64_t{1} << 13;
/// `prepare` checks this many rows of a batch in the page cache. If all of them are
/// cached, this call and the next `kSkipped` calls do nothing.
constexpr std::size_t kProbes = 64;
constexpr int kSkipped = 15;

}  // namespace

MappedColumn::MappedColumn(Field field, std::vector<MappedArray> arrays, RowForm form)
    : field_(std::move(field)),
      row_bytes_(byte_size(field_)),
      form_(form),
      positioned_(row_bytes_ >= kPositioned),
      arrays_(std::move(arrays)) {
  first_.reserve(arrays_.size() + 1);
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const MappedArray& array = arrays_[i];
    const std::int64_t size = array.file->size();
    std::int64_t end = 0;  // where the last row ends
    const bool overflows =
        array.rows < 0 || array.offset < 0 || array.stride < 0 ||
        __builtin_mul_overflow(std::max<std::int64_t>(array.rows - 1, 0), array.stride,
                               &end) ||
        __builtin_add_overflow(end, array.offset, &end) ||
        __builtin_add_overflow(end, array.rows > 0 ? row_bytes_ : 0, &end);
    if (overflows || end > size) {
      throw DataError({.file = name_of(i),
                       .offset = array.offset,
                       .field = field_.name,
                       .expected = text(array.rows, " rows of ", str(field_), ", ",
                                        array.stride, " bytes apart"),
                       .found = text(size, " bytes in the file")});
    }
    std::int64_t rows = 0;
    if (__builtin_add_overflow(first_.back(), array.rows, &rows)) {
      throw DataError(
          {.file = name_of(i),
           .offset = array.offset,
           .field = field_.name,
           .expected = text("fewer than 2^63 rows of ", str(field_), " in all"),
           .found = text(array.rows, " more than ", first_.back())});
    }
    first_.push_back(rows);
    one_file_ = one_file_ && array.file == arrays_.front().file;
    if (row_bytes_ >= kRandomRowBytes) array.file->advise_random();
  }
}

std::size_t MappedColumn::array_of(std::int64_t index) const noexcept {
  // Most arrays have as many rows as the first one.
  if (first_[1] > 0) {
    const auto guess = static_cast<std::size_t>(index / first_[1]);
    if (guess < arrays_.size() && first_[guess] <= index && index < first_[guess + 1]) {
      return guess;
    }
  }
  const auto after = std::upper_bound(first_.begin() + 1, first_.end(), index);
  return static_cast<std::size_t>(after - first_.begin()) - 1;
}

void MappedColumn::read(std::span<const std::int64_t> indices, const Column& to,
                        Memory& memory, const CallContext& context) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  const auto scratch = [&] {
    return Column{field_.dtype, field_.shape, memory.allocate(count * row_bytes_),
                  row_bytes_, nullptr};
  };
  const bool views = to.data == nullptr;
  const bool converts = !views && to.dtype != field_.dtype;
  const Column values = views || converts ? scratch() : to;
  if (form_.stored == Stored::kPlanar) {
    const Column planes = scratch();
    fetch(indices, planes.data, planes.stride, memory, context);
    for (std::int64_t k = 0; k < count; ++k) {
      interleave(planes.row(k), values.row(k), field_.shape);
    }
  } else {
    fetch(indices, values.data, values.stride, memory, context);
    const std::int64_t elements = field_.shape.elements();
    for (std::int64_t k = 0; k < count && form_.stored == Stored::kBigEndian; ++k) {
      swap_bytes(values.row(k), field_.dtype, elements);
    }
    for (std::int64_t k = 0; k < count && field_.dtype == DType::kBool; ++k) {
      clean_booleans(values.row(k), elements);
    }
  }
  if (form_.below < 256) check_range(indices, values);
  if (views) {
    for (std::int64_t k = 0; k < count; ++k) to.rows[k] = values.row(k);
  }
  if (!converts) return;
  const Convert convert = converter(field_.dtype, to.dtype);
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t elements = field_.shape.elements();
    const std::int64_t fitting = convert(values.row(k), to.row(k), elements);
    if (fitting == elements) continue;
    const std::int64_t index = indices[static_cast<std::size_t>(k)];
    const std::size_t array = array_of(index);
    throw unfit(
        {.file = name_of(array), .sample = index - first_[array], .field = field_.name},
        values, values.row(k), fitting, to.dtype);
  }
}

std::optional<MappedColumn> MappedColumn::windows(std::int64_t begin, std::int64_t end,
                                                  std::int64_t length) const {
  const std::size_t i = array_of(begin);
  MappedArray array = arrays_[i];
  if (array.stride != row_bytes_ || form_.stored == Stored::kPlanar ||
      form_.below < 256) {
    return {};
  }
  array.offset = offset_of(i, begin);
  array.rows = end - begin - length + 1;
  return MappedColumn(stacked(field_, length), {std::move(array)}, form_);
}

void MappedColumn::check_range(std::span<const std::int64_t> indices,
                               const Column& values) const {
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const std::byte* row = values.row(static_cast<std::int64_t>(k));
    for (std::int64_t j = 0; j < row_bytes_; ++j) {
      const int found = std::to_integer<int>(row[j]);
      if (found < form_.below) continue;
      const std::size_t array = array_of(indices[k]);
      throw DataError({.file = name_of(array),
                       .offset = offset_of(array, indices[k]) + j,
                       .sample = indices[k] - first_[array],
                       .field = field_.name,
                       .expected = text("a value below ", form_.below),
                       .found = text(found)});
    }
  }
}

void MappedColumn::fetch(std::span<const std::int64_t> indices, std::byte* to,
                         std::int64_t stride, Memory& memory,
                         const CallContext& context) const {
  if (row_bytes_ == 0 || indices.empty()) return;
  const MappedArray& array = arrays_.front();
  if (arrays_.size() == 1 && array.file->is_mapped() && !positioned_) {
    const Column from = {field_.dtype, field_.shape,
                         const_cast<std::byte*>(array.file->data()) + array.offset,
                         array.stride, nullptr};
    Column dense = {field_.dtype, field_.shape, to, stride, nullptr};
    array.file->read([&] { gather(from, indices, dense, field_.name); },
                     offset_of(0, std::ranges::max(indices)) + row_bytes_);
    return;
  }
  const auto count = static_cast<std::int64_t>(indices.size());
  const auto order = memory.array<std::size_t>(count);
  const auto offsets = memory.array<std::int64_t>(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!one_file_)
    std::ranges::sort(order, {}, [&](std::size_t k) { return indices[k]; });
  for (std::size_t k = 0; k < order.size();) {
    const std::size_t first = array_of(indices[order[k]]);
    const MappedFile& file = *arrays_[first].file;
    std::size_t rows = 0;
    for (; k + rows < order.size(); ++rows) {
      const std::int64_t index = indices[order[k + rows]];
      const std::size_t i = array_of(index);
      if (arrays_[i].file.get() != &file) break;
      offsets[k + rows] = offset_of(i, index);
    }
    fetch_file(file, offsets.subspan(k, rows), order.subspan(k, rows), to, stride,
               context);
    k += rows;
  }
}

void MappedColumn::fetch_file(const MappedFile& file,
                              std::span<const std::int64_t> offsets,
                              std::span<const std::size_t> rows, std::byte* to,
                              std::int64_t stride, const CallContext& context) const {
  const auto bytes = static_cast<std::size_t>(row_bytes_);
  const auto row_to = [&](std::size_t k) {
    return to + static_cast<std::int64_t>(rows[k]) * stride;
  };
  if (!file.is_mapped() || positioned_) {
    std::optional<File> again;
    if (!file.is_mapped()) again = file.open();
    for (std::size_t k = 0; k < rows.size(); ++k) {
      if (!context.wanted()) throw Cancelled("interrupted");
      const std::span<std::byte> row(row_to(k), bytes);
      if (again) {
        again->read(offsets[k], row);
      } else {
        file.read(offsets[k], row);
      }
    }
    return;
  }
  constexpr auto kAhead = static_cast<std::size_t>(kPrefetchRows);
  file.read(
      [&] {
        for (std::size_t k = 0; k < rows.size(); ++k) {
          if (k + kAhead < rows.size()) {
            prefetch(file.data() + offsets[k + kAhead], row_bytes_);
          }
          std::memcpy(row_to(k), file.data() + offsets[k], bytes);
        }
      },
      std::ranges::max(offsets) + row_bytes_);
}

void MappedColumn::prepare(std::span<const std::int64_t> indices) const noexcept {
  if (row_bytes_ == 0 || indices.empty()) return;
  if (skipped_->load() > 0 && skipped_->fetch_sub(1) > 0) return;
  bool cached = true;
  const std::size_t step = (indices.size() + kProbes - 1) / kProbes;
  for (std::size_t k = 0; k < indices.size() && cached; k += step) {
    const std::size_t i = array_of(indices[k]);
    const MappedFile& file = *arrays_[i].file;
    cached = !file.is_mapped() || file.cached(offset_of(i, indices[k]));
  }
  if (cached) return skipped_->store(kSkipped);
  try {
    std::vector<std::int64_t> sorted(indices.begin(), indices.end());
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t k = 0; k < sorted.size();) {
      const std::size_t i = array_of(sorted[k]);
      const std::int64_t begin = offset_of(i, sorted[k]);
      std::int64_t end = begin + row_bytes_;
      for (++k; k < sorted.size() && sorted[k] < first_[i + 1]; ++k) {
        const std::int64_t next = offset_of(i, sorted[k]);
        if (next > end + kGap) break;
        end = next + row_bytes_;
      }
      arrays_[i].file->will_need(begin, end - begin);
    }
  } catch (const std::bad_alloc&) {
    // Preparing is optional.
  }
}

MappedArray mapped_array(std::shared_ptr<const MappedFile> file,
                         const ArrayLayout& layout, std::int64_t begin) {
  const std::int64_t row =
      row_field({}, layout).shape.elements() * byte_size(layout.dtype);
  return {std::move(file), begin + layout.offset, row, layout.shape[0]};
}

Field row_field(std::string name, const ArrayLayout& layout) {
  return {std::move(name), layout.dtype, Shape(layout.shape.extents().subspan(1))};
}

}  // namespace millstream
