#pragma once

#include <filesystem>
#include <vector>

#include "millstream/codec/cifar.h"
#include "millstream/source/combine.h"

namespace millstream {

enum class CifarSplit : std::uint8_t { kTrain, kTest };

/// The images and labels of CIFAR-10 or CIFAR-100, from the binary files or from those
/// that Python pickled, which are not run. Fields: image uint8(32, 32, 3), label
/// uint8() and, of CIFAR-100, coarse_label uint8(). Images stay on disk, where they are
/// mapped, but for those that a pickle holds as text: they are decoded into memory.
/// Labels below the number of classes are promised: pickled ones are checked when the
/// source is opened, others as they are read.
class CifarSource final : public Source {
 public:
  /// These batches, one after the other. All are binary or all are pickled.
  CifarSource(const std::vector<std::filesystem::path>& batches, CifarKind kind);

  /// The batches of a split in a folder or in an archive as they are published: .tar,
  /// or .tar.gz, which is unpacked once into `cache`. Throws `DataError` for damage and
  /// missing batches, `ArgumentError` where an archive is packed and `cache` is empty.
  CifarSource(const std::filesystem::path& path, CifarKind kind, CifarSplit split,
              const std::filesystem::path& cache = {});

  std::int64_t size() const noexcept override { return source_->size(); }
  const Schema& schema() const noexcept override { return source_->schema(); }
  void read(std::span<const std::int64_t> indices, std::span<Column> columns,
            Memory& memory) const override {
    source_->read(indices, columns, memory);
  }
  void read_for(const Making& making, std::int64_t first,
                std::span<const std::int64_t> indices, std::span<Column> columns,
                Memory& memory) const override {
    source_->read_for(making, first, indices, columns, memory);
  }
  void hint(std::span<const std::int64_t> indices) const noexcept override {
    source_->hint(indices);
  }

 private:
  SharedSource source_;
};

}  // namespace millstream
