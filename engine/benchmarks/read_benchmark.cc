#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millstream/core/memory.h"
#include "millstream/order/permutation.h"
#include "millstream/source/mapped_column.h"

namespace millstream {
namespace {

constexpr std::int64_t kFile = std::int64_t{256} << 20;
constexpr std::int64_t kBatch = std::int64_t{2} << 20;

/// A file in the page cache. The destructor deletes it.
class WarmFile {
 public:
  WarmFile()
      : path_(std::filesystem::temp_directory_path() /
              ("millstream_read_" + std::to_string(::getpid()))) {
    std::ofstream out(path_, std::ios::binary);
    const std::string block(std::size_t{1} << 20, 'x');
    for (std::int64_t at = 0; at < kFile; at += std::int64_t{1} << 20) out << block;
  }
  ~WarmFile() {
    std::error_code code;
    std::filesystem::remove(path_, code);
  }
  WarmFile(const WarmFile&) = delete;
  WarmFile& operator=(const WarmFile&) = delete;

  std::shared_ptr<const MappedFile> open() const {
    return std::make_shared<const MappedFile>(File(path_));
  }

 private:
  std::filesystem::path path_;
};

const WarmFile& warm_file() {
  static const WarmFile file;
  return file;
}

/// Reads shuffled batches of 2 MiB of rows of `range(0)` bytes. With `anew`, the file
/// is mapped again for every epoch, so that every epoch has page faults.
void read_rows(benchmark::State& state, bool anew) {
  const std::int64_t row = state.range(0);
  const std::int64_t rows = kFile / row;
  const auto opened = [&] {
    return MappedColumn({"row", DType::kUint8, {row}},
                        {{warm_file().open(), 0, row, rows}});
  };
  std::optional<MappedColumn> column(opened());
  const std::int64_t count = kBatch / row;
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  Block block(kBatch);
  Column to = {DType::kUint8, {row}, block.data(), row, nullptr};
  Memory memory;
  const Grid grid(rows);
  std::int64_t first = 0;
  std::uint32_t epoch = 0;
  for (auto _ : state) {
    if (first + count > rows) {
      first = 0;
      ++epoch;
      if (anew) column.emplace(opened());
    }
    Permutation(grid, {1, 2}, epoch, Purpose::kShuffle).run(first, indices);
    first += count;
    column->read(indices, to, memory);
    memory.reset();
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kBatch);
}

void warm(benchmark::State& state) { read_rows(state, false); }
void warm_anew(benchmark::State& state) { read_rows(state, true); }
BENCHMARK(warm_anew)->RangeMultiplier(2)->Range(1 << 10, 1 << 20);
BENCHMARK(warm)->RangeMultiplier(2)->Range(1 << 10, 1 << 20);

}  // namespace
}  // namespace millstream
