#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millstream/io/mapped_file.h"
#include "millstream/source/source.h"

namespace millstream {

/// An array in memory whose rows are samples. Each row is contiguous. Rows are `stride`
/// bytes apart; the stride may be zero or negative.
struct Array {
  Field field;  // of one row
  std::int64_t size = 0;
  const std::byte* data = nullptr;
  std::int64_t stride = 0;
  std::shared_ptr<const void> owner;              // keeps `data` alive
  std::shared_ptr<const MappedFile> mapped = {};  // if `data` is a memory-mapped file
  bool packed = false;                            // made by `packed` (pack.h)
};

/// Samples that consist of one row of each of several arrays. The arrays are not
/// copied. Reading an array in a mapped file waits for the disk, never returns views,
/// and throws `IoError` if the file was truncated.
class ArraysSource final : public Source {
 public:
  /// Throws `ArgumentError` unless there is at least one array, none is empty and all
  /// have the same number of rows.
  explicit ArraysSource(std::vector<Array> arrays);

  const std::vector<Array>& arrays() const noexcept { return arrays_; }

  std::int64_t size() const noexcept override { return arrays_.front().size; }
  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override { return traits_; }
  void read(const Request& request, Rows& rows) const override;
  void prepare(std::span<const std::int64_t>) const noexcept override {}
  WorkerPool* worker_pool() const noexcept override { return nullptr; }

 private:
  void read(std::size_t i, std::span<const std::int64_t> indices, const Column& to,
            Memory& memory) const;

  std::vector<Array> arrays_;
  /// Arrays whose rows lie side by side, such as the fields of a structured array. They
  /// are read together, so that a row stays in the CPU's cache.
  std::vector<std::vector<std::size_t>> groups_;
  std::vector<std::size_t> alone_;  // all other arrays
  Schema schema_;
  Traits traits_;
};

}  // namespace millstream
