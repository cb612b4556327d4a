#include "millstream/order/permutation.h"

#include <algorithm>
#include <cmath>

#include "millstream/core/error.h"

namespace millstream {
namespace {

constexpr int kLanes = 64;

using Keys = std::array<std::uint32_t, Permutation::kRounds>;

[[gnu::always_inline]] inline std::uint32_t hashed(std::uint32_t x, std::uint32_t key) {
  std::uint32_t h = (x ^ key) * 0x9E3779B1u;
  h ^= h >> 15;
  h *= 0x85EBCA77u;
  h ^= h >> 13;
  return h * 0xC2B2AE3Du;
}

/// Returns (x + a hash of `other`) modulo `size`, for x < size <= 2^31.
[[gnu::always_inline]] inline std::uint32_t turned(std::uint32_t x, std::uint32_t other,
                                                   std::uint32_t key,
                                                   std::uint32_t size) {
  const auto by = static_cast<std::uint32_t>(
      (static_cast<std::uint64_t>(hashed(other, key)) * size) >> 32);
  const std::uint32_t sum = x + by;
  return std::min(sum, sum - size);  // wraps to a large number if sum < size
}

template <int kCount>
[[gnu::always_inline]] inline void turn(const Grid& grid, const Keys& keys,
                                        std::uint32_t* row, std::uint32_t* column) {
  for (std::size_t round = 0; round < keys.size(); round += 2) {
    const std::uint32_t first = keys[round];
    const std::uint32_t second = keys[round + 1];
    for (int i = 0; i < kCount; ++i)
      row[i] = turned(row[i], column[i], first, grid.rows);
    for (int i = 0; i < kCount; ++i) {
      column[i] = turned(column[i], row[i], second, grid.columns);
    }
  }
}

using Rounds = void (*)(const Grid&, const Keys&, std::uint32_t*, std::uint32_t*);

void run_rounds(const Grid& grid, const Keys& keys, std::uint32_t* row,
                std::uint32_t* column) {
  turn<kLanes>(grid, keys, row, column);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void run_rounds_avx2(const Grid& grid, const Keys& keys,
                                             std::uint32_t* row,
                                             std::uint32_t* column) {
  turn<kLanes>(grid, keys, row, column);
}
const Rounds kRunRounds = __builtin_cpu_supports("avx2") ? run_rounds_avx2 : run_rounds;
#else
const Rounds kRunRounds = run_rounds;
#endif

/// Fills `words` with random words. Their number must be a multiple of four.
void draw(std::span<std::uint32_t> words, Seed seed, std::uint32_t epoch,
          Purpose purpose) {
  for (std::uint32_t i = 0; i < words.size(); i += 4) {
    const auto block = philox({epoch, i / 4, 0, static_cast<std::uint32_t>(purpose)},
                              {seed.low, seed.high});
    std::copy(block.begin(), block.end(), words.begin() + i);
  }
}

}  // namespace

Grid::Grid(std::int64_t samples) : n(samples) {
  if (n <= 0 || n > kMaxSamples) {
    throw ArgumentError(text("an order needs between 1 and 2^62 samples, not ", n));
  }
  auto root = static_cast<std::int64_t>(std::sqrt(static_cast<double>(n)));
  while (root * root < n) ++root;
  while ((root - 1) * (root - 1) >= n) --root;
  rows = static_cast<std::uint32_t>(root);
  columns = static_cast<std::uint32_t>((n + root - 1) / root);
}

Permutation::Permutation(const Grid& grid, Seed seed, std::uint32_t epoch,
                         Purpose purpose)
    : grid_(grid) {
  if (grid.n > kExact) {
    draw(keys_, seed, epoch, purpose);
    return;
  }
  std::array<std::uint32_t, kExact> words;
  std::array<std::uint64_t, kExact> sorted;
  const auto n = static_cast<std::uint32_t>(grid.n);
  draw(std::span(words).first((n + 3) / 4 * 4), seed, epoch, purpose);
  for (std::uint32_t i = 0; i < n; ++i) {
    sorted[i] = (std::uint64_t{words[i]} << 32) | i;
  }
  std::sort(sorted.begin(), sorted.begin() + n);
  for (std::uint32_t i = 0; i < n; ++i)
    table_[i] = static_cast<std::uint8_t>(sorted[i]);
}

std::int64_t Permutation::operator()(std::int64_t position) const noexcept {
  if (grid_.n <= kExact) return table_[static_cast<std::size_t>(position)];
  do {
    auto row = static_cast<std::uint32_t>(position / grid_.columns);
    auto column = static_cast<std::uint32_t>(position % grid_.columns);
    turn<1>(grid_, keys_, &row, &column);
    position = std::int64_t{row} * grid_.columns + column;
  } while (position >= grid_.n);
  return position;
}

void Permutation::run(std::int64_t first, std::span<std::int64_t> out) const noexcept {
  if (grid_.n <= kExact) {
    for (std::int64_t& index : out) index = table_[static_cast<std::size_t>(first++)];
    return;
  }
  auto next_row = static_cast<std::uint32_t>(first / grid_.columns);
  auto next_column = static_cast<std::uint32_t>(first % grid_.columns);
  for (std::size_t done = 0; done < out.size(); done += kLanes) {
    std::uint32_t row[kLanes];
    std::uint32_t column[kLanes];
    for (std::uint32_t i = 0; i < kLanes; ++i) {
      row[i] = next_row;
      column[i] = next_column + i;
    }
    next_column += kLanes;
    if (next_column >= grid_.columns) {  // lanes past the end of `out` are ignored
      for (int i = 0; i < kLanes; ++i) {
        row[i] += column[i] / grid_.columns;
        column[i] %= grid_.columns;
      }
      next_row += next_column / grid_.columns;
      next_column %= grid_.columns;
    }
    kRunRounds(grid_, keys_, row, column);
    const std::size_t count = std::min<std::size_t>(kLanes, out.size() - done);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t index = std::int64_t{row[i]} * grid_.columns + column[i];
      out[done + i] = index < grid_.n ? index : (*this)(index);
    }
  }
}

}  // namespace millstream
