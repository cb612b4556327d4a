#include "millstream/source/mapped_column.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"
#include "millstream/source/gather.h"
#include "millstream/source/rearrange.h"

namespace millstream {
namespace {

/// Rows of at least this many bytes are read by pread, smaller ones copied from the
/// map, which is as fast for these and up to 8 times as fast for small ones
/// (`read_benchmark.cc`).
constexpr std::int64_t kPositioned = std::int64_t{1} << 19;
/// Ranges closer than this are asked for as one.
constexpr std::int64_t kGap = std::int64_t{1} << 14;
/// Of rows of at least this many bytes the system is not to read the neighbours: rows
/// are drawn from anywhere, and the prefetcher says which will be needed.
constexpr std::int64_t kAlone = std::int64_t{1} << 13;
/// Of files of at most this many bytes together a few batches of smaller rows touch
/// every large page that there is, so they are read whole at once and need no hints:
/// these would have the system read them in small pages.
constexpr std::int64_t kSmallFiles = std::int64_t{1} << 28;
/// Rows of a batch that are looked at. All of them in memory says that the rest of the
/// file is too, but for a hundredth or so, and for some batches nothing is asked for: a
/// row that is then missing is waited for, page after page.
constexpr std::size_t kProbes = 64;
constexpr std::size_t kAhead = 4;

void copy_rows(std::span<const std::byte* const> rows, std::int64_t bytes,
               std::byte* to, std::int64_t stride) {
  const auto count = static_cast<std::size_t>(bytes);
  for (std::size_t k = 0; k < rows.size(); ++k) {
    if (k + kAhead < rows.size()) __builtin_prefetch(rows[k + kAhead]);
    std::memcpy(to, rows[k], count);
    to += stride;
  }
}

}  // namespace

MappedColumn::MappedColumn(Field field, std::vector<MappedPart> parts, RowForm form)
    : field_(std::move(field)),
      row_bytes_(byte_size(field_)),
      form_(form),
      positioned_(form.reading == Reading::kBySize
                      ? row_bytes_ >= kPositioned
                      : form.reading == Reading::kPositioned),
      parts_(std::move(parts)) {
  std::int64_t bytes = 0;
  for (const MappedPart& part : parts_) {
    const std::int64_t size = part.file->size();
    std::int64_t end = 0;  // of the last row
    const bool overflows =
        part.rows < 0 || part.offset < 0 || part.stride < 0 ||
        __builtin_mul_overflow(std::max<std::int64_t>(part.rows - 1, 0), part.stride,
                               &end) ||
        __builtin_add_overflow(end, part.offset, &end) ||
        __builtin_add_overflow(end, part.rows > 0 ? row_bytes_ : 0, &end);
    if (overflows || end > size) {
      throw DataError(text(part.file->path().string(), ": offset ", part.offset,
                           ": expected ", part.rows, " rows of ", str(field_), ", ",
                           part.stride, " bytes apart, found ", size,
                           " bytes in the file"));
    }
    std::int64_t rows = 0;
    if (__builtin_add_overflow(first_.back(), part.rows, &rows)) {
      throw DataError(text(part.file->path().string(), ": offset ", part.offset,
                           ": expected fewer than 2^63 rows of ", str(field_),
                           " in all, found ", part.rows, " more than ", first_.back()));
    }
    first_.push_back(rows);
    ranges_.push_back(part.file->range());
    positioned_ = positioned_ && part.file->has_descriptor();
    bytes += size;
  }
  read_ahead_ = std::make_unique<ReadAhead>(bytes);
  small_ = row_bytes_ < kAlone && bytes <= kSmallFiles;
  for (const MappedPart& part : parts_) {
    if (row_bytes_ >= kAlone) part.file->in_any_order();
    if (small_) part.file->in_large_pages();
  }
}

std::size_t MappedColumn::part_of(std::int64_t index) const noexcept {
  const auto after = std::upper_bound(first_.begin() + 1, first_.end(), index);
  return static_cast<std::size_t>(after - first_.begin()) - 1;
}

void MappedColumn::read(std::span<const std::int64_t> indices, Column& to,
                        Memory& memory, const Making& making) const {
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
    fetch(indices, planes.data, planes.stride, memory, making);
    for (std::int64_t k = 0; k < count; ++k) {
      interleave(planes.row(k), values.row(k), field_.shape);
    }
  } else {
    fetch(indices, values.data, values.stride, memory, making);
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
    const std::size_t part = part_of(index);
    throw DataError(text(name_of(part), ": ", field_.name, ": sample ",
                         index - first_[part], " holds a ", name(field_.dtype),
                         " at element ", fitting, " that ", name(to.dtype),
                         " cannot hold"));
  }
}

void MappedColumn::check_range(std::span<const std::int64_t> indices,
                               const Column& values) const {
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const std::byte* row = values.row(static_cast<std::int64_t>(k));
    for (std::int64_t j = 0; j < row_bytes_; ++j) {
      const int found = std::to_integer<int>(row[j]);
      if (found < form_.below) continue;
      const std::size_t part = part_of(indices[k]);
      throw DataError(text(name_of(part), ": offset ", offset_of(part, indices[k]) + j,
                           ": sample ", indices[k] - first_[part], ": expected ",
                           field_.name, " below ", form_.below, ", found ", found));
    }
  }
}

void MappedColumn::fetch(std::span<const std::int64_t> indices, std::byte* to,
                         std::int64_t stride, Memory& memory,
                         const Making& making) const {
  if (row_bytes_ == 0 || indices.empty()) return;
  if (positioned_) {
    read_positioned(indices, to, stride, memory, making);
  } else {
    copy_mapped(indices, to, stride, memory);
  }
}

void MappedColumn::copy_mapped(std::span<const std::int64_t> indices, std::byte* to,
                               std::int64_t stride, Memory& memory) const {
  if (parts_.size() == 1) {
    const MappedPart& part = parts_.front();
    const Column from = {field_.dtype, field_.shape,
                         const_cast<std::byte*>(part.file->data()) + part.offset,
                         part.stride, nullptr};
    Column dense = {field_.dtype, field_.shape, to, stride, nullptr};
    std::int64_t whole = 0;
    const std::byte* fault = guarded(ranges_, [&] {
      gather(from, indices, dense, field_.name);
      whole = part.file->whole_to();
    });
    if (fault != nullptr) fail_at(fault);
    check_ends(indices, whole);
    return;
  }
  const auto count = static_cast<std::int64_t>(indices.size());
  const auto rows = memory.array<const std::byte*>(count);
  const auto part_at = memory.array<std::size_t>(count);
  const auto whole = memory.array<std::int64_t>(count);
  for (std::size_t k = 0; k < indices.size(); ++k) {
    part_at[k] = part_of(indices[k]);
    rows[k] = parts_[part_at[k]].file->data() + offset_of(part_at[k], indices[k]);
  }
  const std::byte* fault = guarded(ranges_, [&] {
    copy_rows(rows, row_bytes_, to, stride);
    for (std::size_t k = 0; k < part_at.size(); ++k) {
      whole[k] = parts_[part_at[k]].file->whole_to();
    }
  });
  if (fault != nullptr) fail_at(fault);
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const std::int64_t end = offset_of(part_at[k], indices[k]) + row_bytes_;
    if (end > whole[k]) parts_[part_at[k]].file->check_size();
  }
}

void MappedColumn::check_ends(std::span<const std::int64_t> indices,
                              std::int64_t whole) const {
  const MappedPart& part = parts_.front();
  if (whole == part.file->size()) return;
  const std::int64_t room = whole - part.offset - row_bytes_;
  const std::int64_t last = room < 0           ? -1  // row that ends there or before
                            : part.stride == 0 ? part.rows - 1
                                               : room / part.stride;
  const auto behind = [last](std::int64_t index) { return index > last; };
  if (std::ranges::any_of(indices, behind)) part.file->check_size();
}

void MappedColumn::fail_at(const std::byte* fault) const {
  for (const MappedPart& part : parts_) {
    if (part.file->range().holds(fault)) throw part.file->lost(fault);
  }
  for (const MappedPart& part : parts_) part.file->check_size();
  throw parts_.front().file->lost(parts_.front().file->data());
}

void MappedColumn::read_positioned(std::span<const std::int64_t> indices, std::byte* to,
                                   std::int64_t stride, Memory& memory,
                                   const Making& making) const {
  // In the order of the file, which disks prefer; neighbours that stay neighbours are
  // one read.
  const auto count = indices.size();
  const auto order = memory.array<std::size_t>(static_cast<std::int64_t>(count));
  for (std::size_t k = 0; k < count; ++k) order[k] = k;
  const auto before = [&](std::size_t a, std::size_t b) {
    return indices[a] < indices[b];
  };
  if (!std::is_sorted(order.begin(), order.end(), before)) {
    std::sort(order.begin(), order.end(), before);
  }
  for (std::size_t k = 0; k < count;) {
    if (!making.wanted()) throw Cancelled("interrupted");
    const std::size_t row = order[k];
    const std::int64_t index = indices[row];
    const std::size_t i = part_of(index);
    const MappedPart& part = parts_[i];
    const bool dense = part.stride == row_bytes_ && stride == row_bytes_;
    std::size_t run = 1;
    while (dense && k + run < count && order[k + run] == row + run &&
           indices[row + run] == index + static_cast<std::int64_t>(run) &&
           indices[row + run] < first_[i + 1]) {
      ++run;
    }
    part.file->read(offset_of(i, index), {to + static_cast<std::int64_t>(row) * stride,
                                          run * static_cast<std::size_t>(row_bytes_)});
    k += run;
  }
}

void MappedColumn::hint(std::span<const std::int64_t> indices) const noexcept {
  if (row_bytes_ == 0 || indices.empty() || small_ || read_ahead_->rests()) return;
  bool cached = true;
  const std::size_t step = (indices.size() + kProbes - 1) / kProbes;
  for (std::size_t k = 0; k < indices.size() && cached; k += step) {
    const std::size_t i = part_of(indices[k]);
    cached = parts_[i].file->cached(offset_of(i, indices[k]), row_bytes_);
  }
  if (cached) {
    read_ahead_->rest();
    return;
  }
  try {
    std::vector<std::int64_t> sorted(indices.begin(), indices.end());
    std::sort(sorted.begin(), sorted.end());
    std::vector<FileRange> ranges;
    for (std::size_t k = 0; k < sorted.size();) {
      const std::size_t i = part_of(sorted[k]);
      const std::int64_t begin = offset_of(i, sorted[k]);
      std::int64_t end = begin + row_bytes_;
      for (++k; k < sorted.size() && sorted[k] < first_[i + 1]; ++k) {
        const std::int64_t next = offset_of(i, sorted[k]);
        if (next > end + kGap) break;
        end = next + row_bytes_;
      }
      ranges.push_back({parts_[i].file.get(), begin, end - begin});
    }
    read_ahead_->ask(ranges);
  } catch (const std::bad_alloc&) {
    // It was only a hint.
  }
}

MappedPart mapped_part(std::shared_ptr<const MappedFile> file,
                       const ArrayLayout& layout, std::int64_t begin) {
  const std::int64_t row =
      row_field({}, layout).shape.elements() * byte_size(layout.dtype);
  return {std::move(file), begin + layout.offset, row, layout.shape[0]};
}

Field row_field(std::string name, const ArrayLayout& layout) {
  return {std::move(name), layout.dtype, Shape(layout.shape.extents().subspan(1))};
}

}  // namespace millstream
