#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millstream/io/mapped_file.h"
#include "millstream/source/source.h"

namespace millstream {

/// An array in memory whose rows are samples. Rows are dense in themselves and stand
/// `stride` bytes apart, which may be zero or negative.
struct Array {
  Field field;  // of one row
  std::int64_t size = 0;
  const std::byte* data = nullptr;
  std::int64_t stride = 0;
  std::shared_ptr<const void> owner;              // keeps `data` alive
  std::shared_ptr<const MappedFile> mapped = {};  // where it lies in a file
};

/// Samples made of one row of each of several arrays, read where they are. An array in
/// a mapped file waits for the disk and lends no views; a file that was cut is an
/// `IoError`.
class ArraysSource final : public Source {
 public:
  /// Throws `ArgumentError` unless there are arrays, none is empty and all have as many
  /// rows.
  explicit ArraysSource(std::vector<Array> arrays);

  /// Throws `ArgumentError` naming the first 64-bit integer that 32 bits cannot hold.
  void check_narrow() const;

  std::int64_t size() const noexcept override { return arrays_.front().size; }
  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override { return traits_; }
  void read(const Request& request, Rows& rows) const override;
  void prepare(std::span<const std::int64_t>) const noexcept override {}
  WorkerPool* worker_pool() const noexcept override { return nullptr; }

 private:
  std::vector<Array> arrays_;
  Schema schema_;
  Traits traits_;
};

}  // namespace millstream
