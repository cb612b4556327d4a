#pragma once

#include <filesystem>
#include <vector>

#include "millstream/codec/cifar.h"
#include "millstream/source/combine.h"

namespace millstream {

enum class CifarSplit : std::uint8_t { kTrain, kTest };

/// The images and labels of CIFAR-10 or CIFAR-100, from binary files or from Python
/// pickles, which are parsed but never run. The fields are image uint8(32, 32, 3),
/// label uint8() and, for CIFAR-100, coarse_label uint8(). Images are memory-mapped,
/// except those that a pickle stores as text; these are decoded into memory. Labels of
/// pickles are checked when the source is opened, those of binary files when they are
/// read.

/// Reads these batches, one after the other. All must be binary or all pickled.
SharedSource cifar_source(const std::vector<std::filesystem::path>& batches,
                          CifarKind kind);

/// Reads the batches of a split from a folder or from a published archive (.tar or
/// .tar.gz). A .tar.gz is unpacked once into `cache`. Throws `DataError` for damaged or
/// missing batches, and `ArgumentError` if the archive is compressed and `cache` is
/// empty.
SharedSource cifar_source(const std::filesystem::path& path, CifarKind kind,
                          CifarSplit split, const std::filesystem::path& cache = {});

}  // namespace millstream
