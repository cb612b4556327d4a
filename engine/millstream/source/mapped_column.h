#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millstream/codec/layout.h"
#include "millstream/core/column.h"
#include "millstream/core/memory.h"
#include "millstream/core/schema.h"
#include "millstream/core/worker_pool.h"
#include "millstream/io/mapped_file.h"

namespace millstream {

/// One array inside one mapped file: rows of a fixed size, `stride` bytes apart.
struct MappedArray {
  std::shared_ptr<const MappedFile> file;
  std::int64_t offset = 0;  // of row 0
  std::int64_t stride = 0;
  std::int64_t rows = 0;
  FileName name = {};  // for errors, where it is not the file's own
};

/// How the bytes of a stored row become those of its field.
enum class Stored : std::uint8_t {
  kPlain,
  kBigEndian,
  kPlanar,  // [channels, height, width] of bytes, for a field [height, width, channels]
};

/// What is known of the rows of a field in a file.
struct RowForm {
  Stored stored = Stored::kPlain;
  int below = 256;  // what bytes have to be less than, checked as they are read
};

/// A field whose rows lie in one or more mapped files, one array after the other.
/// Opening it reads nothing. Immutable; any number of threads may read at once.
class MappedColumn {
 public:
  /// Throws `DataError` where an array does not fit into its file, and where the arrays
  /// have more rows than can be counted.
  MappedColumn(Field field, std::vector<MappedArray> arrays, RowForm form = {});

  std::int64_t size() const noexcept { return first_.back(); }
  const Field& field() const noexcept { return field_; }
  /// The first of its files, for errors.
  FileName file() const { return arrays_.empty() ? FileName() : name_of(0); }
  /// Of row 0 in it.
  std::int64_t offset() const { return arrays_.empty() ? 0 : arrays_.front().offset; }

  /// Row k of `to` becomes row indices[k], as `Source::read` has it. Throws `IoError`
  /// naming the file where one cannot be read to the end that it had, `DataError` for
  /// values out of their range, `Cancelled` where nobody wants large rows any more.
  void read(std::span<const std::int64_t> indices, const Column& to, Memory& memory,
            const CallContext& context = {}) const;

  /// Asks for these rows ahead, unless all that are looked at are in the page cache;
  /// then the next few calls cost nothing.
  void prepare(std::span<const std::int64_t> indices) const noexcept;

 private:
  std::size_t array_of(std::int64_t index) const noexcept;
  std::int64_t offset_of(std::size_t array, std::int64_t index) const noexcept {
    return arrays_[array].offset + (index - first_[array]) * arrays_[array].stride;
  }
  FileName name_of(std::size_t array) const {
    const MappedArray& named = arrays_[array];
    return named.name.path.empty() ? FileName(named.file->path()) : named.name;
  }
  /// Throws `DataError` for the first byte of `values` that is not below the bound.
  void check_range(std::span<const std::int64_t> indices, const Column& values) const;
  /// Copies the stored rows to `to` and every `stride` bytes from there.
  void fetch(std::span<const std::int64_t> indices, std::byte* to, std::int64_t stride,
             Memory& memory, const CallContext& context) const;
  /// The rows of array `i` among them, which `rows` names in the order of the file.
  void fetch_array(std::size_t i, std::span<const std::int64_t> indices,
                   std::span<const std::size_t> rows, std::byte* to,
                   std::int64_t stride, const CallContext& context) const;

  Field field_;
  std::int64_t row_bytes_;
  RowForm form_;
  bool positioned_;  // rows are large enough for a system call each
  std::vector<MappedArray> arrays_;
  std::vector<std::int64_t> first_ = {0};  // row of each array, and their number
  /// Calls of `prepare` that will be skipped because all rows of late were in memory.
  std::unique_ptr<std::atomic<int>> skipped_ = std::make_unique<std::atomic<int>>(0);
};

/// An array and its field, as the header describes them; `begin` is where the header
/// begins in the file.
MappedArray mapped_array(std::shared_ptr<const MappedFile> file,
                         const ArrayLayout& layout, std::int64_t begin = 0);
Field row_field(std::string name, const ArrayLayout& layout);

}  // namespace millstream
