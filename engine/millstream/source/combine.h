#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "millstream/source/source.h"

namespace millstream {

using SharedSource = std::shared_ptr<const Source>;

/// Several sources that are read as one. Its traits combine those of the sources.
class Combined : public Source {
 public:
  Traits traits() const noexcept override { return traits_; }
  WorkerPool* worker_pool() const noexcept override { return worker_pool_; }
  const std::vector<SharedSource>& sources() const noexcept { return sources_; }

 protected:
  /// Throws `ArgumentError` if there are no sources or one of them is null.
  explicit Combined(std::vector<SharedSource> sources);

  std::vector<SharedSource> sources_;

 private:
  Traits traits_;
  WorkerPool* worker_pool_ = nullptr;  // of the first source that has one
};

/// A source that forwards all calls to another source.
class Wrapping : public Source {
 public:
  std::int64_t size() const noexcept override { return source_->size(); }
  const Schema& schema() const noexcept override { return source_->schema(); }
  Traits traits() const noexcept override { return source_->traits(); }
  void prepare(std::span<const std::int64_t> indices) const noexcept override {
    source_->prepare(indices);
  }
  WorkerPool* worker_pool() const noexcept override { return source_->worker_pool(); }
  const SharedSource& source() const noexcept { return source_; }

 protected:
  /// Throws `ArgumentError` if `source` is null.
  explicit Wrapping(SharedSource source);

  SharedSource source_;
};

/// The samples of several sources, one source after the other. Finding the source of a
/// sample takes O(log sources). A batch is read source by source.
class Concatenated final : public Combined {
 public:
  /// Throws `ArgumentError` unless there is at least one source, all have the same
  /// schema, and they have fewer than 2^63 samples in total.
  explicit Concatenated(std::vector<SharedSource> sources);

  std::int64_t size() const noexcept override { return first_.back(); }
  const Schema& schema() const noexcept override { return sources_.front()->schema(); }
  void read(const Request& request, Rows& rows) const override;
  void prepare(std::span<const std::int64_t> indices) const noexcept override;

 private:
  std::size_t source_of(std::int64_t index) const noexcept;
  /// Throws `DataError` for a sample with a value that does not fit into `columns`.
  /// `request` asks its source for this sample only.
  [[noreturn]] void refuse(std::size_t source, const Request& request,
                           std::span<const Column> columns, Memory& memory) const;

  std::vector<std::int64_t> first_ = {0};  // first samples, then the total
};

/// Some samples of a source. A sample may occur several times.
class Subset final : public Wrapping {
 public:
  /// The listed samples, in that order. Throws `ArgumentError` unless there is at least
  /// one and all are in the source.
  Subset(SharedSource source, std::vector<std::int64_t> samples);

  /// `size` samples, beginning with `start`, `step` apart. `step` may be negative.
  /// Throws like the other constructor.
  Subset(SharedSource source, std::int64_t start, std::int64_t size,
         std::int64_t step = 1);

  std::int64_t size() const noexcept override { return size_; }
  void read(const Request& request, Rows& rows) const override;
  void prepare(std::span<const std::int64_t> indices) const noexcept override;

  /// The first sample, if the subset is a slice of neighbouring samples.
  std::optional<std::int64_t> range_start() const noexcept {
    if (samples_.empty() && (step_ == 1 || size_ == 1)) return start_;
    return {};
  }

 private:
  std::int64_t sample(std::int64_t index) const noexcept {
    if (samples_.empty()) return start_ + index * step_;
    return samples_[static_cast<std::size_t>(index)];
  }

  std::vector<std::int64_t> samples_;  // empty for a slice
  std::int64_t size_;
  std::int64_t start_ = 0;
  std::int64_t step_ = 1;
};

/// Samples with the fields of several sources.
class Zipped final : public Combined {
 public:
  /// Throws `ArgumentError` unless there is at least one source, all have the same
  /// size, and no two fields have the same name.
  explicit Zipped(std::vector<SharedSource> sources);

  std::int64_t size() const noexcept override { return sources_.front()->size(); }
  const Schema& schema() const noexcept override { return schema_; }
  void read(const Request& request, Rows& rows) const override;
  void prepare(std::span<const std::int64_t> indices) const noexcept override;

 private:
  Schema schema_;
};

}  // namespace millstream
