#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
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
  FileName name = {};  // for errors, if it differs from the file's
};

/// How a row is stored.
enum class Stored : std::uint8_t {
  kPlain,
  kBigEndian,
  kPlanar,  // bytes [channels, height, width] of a field [height, width, channels]
};

/// The storage form of the rows of a field.
struct RowForm {
  Stored stored = Stored::kPlain;
  int below = 256;  // exclusive limit on each byte, checked on reading
};

/// A field whose rows are in one or more mapped files, one array after the other. The
/// constructor reads nothing. Immutable and thread-safe.
class MappedColumn {
 public:
  /// Throws `DataError` if an array does not fit into its file, or if there are 2^63
  /// rows or more.
  MappedColumn(Field field, std::vector<MappedArray> arrays, RowForm form = {});

  std::int64_t size() const noexcept { return first_.back(); }
  const Field& field() const noexcept { return field_; }
  /// The first file, for errors.
  FileName file() const { return arrays_.empty() ? FileName() : name_of(0); }
  /// The offset of row 0 in that file.
  std::int64_t offset() const { return arrays_.empty() ? 0 : arrays_.front().offset; }

  /// The first row of each array, then the number of rows.
  std::span<const std::int64_t> borders() const noexcept { return first_; }

  /// The windows of `length` neighbouring rows within the rows [begin, end), which are
  /// in one array. Nothing if these rows do not lie side by side, or if their bytes
  /// must be rearranged or checked one by one.
  std::optional<MappedColumn> windows(std::int64_t begin, std::int64_t end,
                                      std::int64_t length) const;

  /// Reads row indices[k] into row k of `to`, like `Source::read`. Throws `IoError`
  /// with the file if it was truncated or cannot be read, `DataError` for values out of
  /// range, and `Cancelled` if `context` is cancelled while large rows are read.
  void read(std::span<const std::int64_t> indices, const Column& to, Memory& memory,
            const CallContext& context = {}) const;

  /// Advises the kernel to read these rows ahead. First checks some of the rows: if all
  /// of those are in the page cache, this call and the next few do nothing.
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
  /// Throws `DataError` for the first byte of `values` that is not below `form_.below`.
  void check_range(std::span<const std::int64_t> indices, const Column& values) const;
  /// Copies the stored rows to `to`, `stride` bytes apart.
  void fetch(std::span<const std::int64_t> indices, std::byte* to, std::int64_t stride,
             Memory& memory, const CallContext& context) const;
  /// Copies only rows of one file. Row k is at offsets[k], and its copy is row rows[k]
  /// of `to`.
  void fetch_file(const MappedFile& file, std::span<const std::int64_t> offsets,
                  std::span<const std::size_t> rows, std::byte* to, std::int64_t stride,
                  const CallContext& context) const;

  Field field_;
  std::int64_t row_bytes_;
  RowForm form_;
  bool positioned_;       // each row is read by `pread`
  bool one_file_ = true;  // all arrays are in one file
  std::vector<MappedArray> arrays_;
  std::vector<std::int64_t> first_ = {0};  // first row of each array, then the total
  /// How many of the next `prepare` calls to skip, because all rows were cached.
  std::unique_ptr<std::atomic<int>> skipped_ = std::make_unique<std::atomic<int>>(0);
};

/// These functions return the array that a header describes, and the field of its rows.
/// The header begins at offset `begin` of the file.
MappedArray mapped_array(std::shared_ptr<const MappedFile> file,
                         const ArrayLayout& layout, std::int64_t begin = 0);
Field row_field(std::string name, const ArrayLayout& layout);

}  // namespace millstream
