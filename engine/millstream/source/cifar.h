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

/// These batches, one after the other. All are binary or all are pickled.
SharedSource cifar_source(const std::vector<std::filesystem::path>& batches,
                          CifarKind kind);

/// The batches of a split in a folder or in an archive as they are published: .tar,
/// or .tar.gz, which is unpacked once into `cache`. Throws `DataError` for damage and
/// missing batches, `ArgumentError` where an archive is packed and `cache` is empty.
SharedSource cifar_source(const std::filesystem::path& path, CifarKind kind,
                          CifarSplit split, const std::filesystem::path& cache = {});

}  // namespace millstream
