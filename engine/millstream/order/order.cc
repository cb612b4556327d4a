#include "millstream/order/order.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/order/draw.h"

namespace millstream {

Order::Order(std::int64_t length, std::int64_t samples, std::string_view what)
    : length_(length), samples_(samples) {
  if (length <= 0 || length > kMaxSamples) {
    throw ArgumentError(
        text(what, " needs between 1 and 2^62 positions, not ", length));
  }
}

void Sequential::run(Seed, std::uint32_t, std::int64_t first,
                     std::span<std::int64_t> out) const {
  std::iota(out.begin(), out.end(), first);
}

void Sequential::add_to(Digest& digest) const {
  digest.add("sequential").add(samples_);
}

void Shuffle::run(Seed seed, std::uint32_t epoch, std::int64_t first,
                  std::span<std::int64_t> out) const {
  Permutation(grid_, seed, epoch, Purpose::kShuffle).run(first, out);
}

void Shuffle::add_to(Digest& digest) const { digest.add("shuffle").add(samples_); }

void Replacement::run(Seed seed, std::uint32_t epoch, std::int64_t first,
                      std::span<std::int64_t> out) const {
  for (std::int64_t& index : out) {
    const auto words = draw(seed, epoch, first++, Purpose::kReplacement);
    index = below(samples_, words[0], words[1]);
  }
}

void Replacement::add_to(Digest& digest) const {
  digest.add("replacement").add(samples_).add(length_);
}

Weighted::Weighted(std::span<const double> weights, std::int64_t length)
    : Order(length, static_cast<std::int64_t>(weights.size()), "a weighted order") {
  if (weights.empty() || weights.size() >= (std::size_t{1} << 31)) {
    throw ArgumentError(text("a weighted order needs between 1 and 2^31 weights, not ",
                             weights.size()));
  }
  double total = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0) {
      throw ArgumentError(text("weight ", i, " is ", weights[i],
                               "; weights must be finite and at least 0"));
    }
    total += weights[i];
  }
  if (!(total > 0) || !std::isfinite(total)) {
    throw ArgumentError(
        text("the weights add up to ", total, "; the sum must be positive and finite"));
  }

  const auto count = static_cast<double>(weights.size());
  std::vector<double> share(weights.size());
  std::vector<std::uint32_t> poor;
  std::vector<std::uint32_t> rich;
  std::uint32_t heaviest = 0;
  for (std::uint32_t i = 0; i < weights.size(); ++i) {
    share[i] = weights[i] / total * count;  // count / total may overflow
    (share[i] < 1 ? poor : rich).push_back(i);
    if (weights[i] > weights[heaviest]) heaviest = i;
  }
  cells_.resize(weights.size());
  while (!poor.empty() && !rich.empty()) {
    const std::uint32_t small = poor.back();
    const std::uint32_t large = rich.back();
    poor.pop_back();
    cells_[small] = {static_cast<std::uint32_t>(share[small] * 0x1p32), large};
    share[large] -= 1 - share[small];
    if (share[large] < 1) {
      rich.pop_back();
      poor.push_back(large);
    }
  }
  for (const std::uint32_t i : rich) cells_[i] = {0, i};
  // Only rounding errors leave these. Each fills a whole cell, unless its weight is 0.
  for (const std::uint32_t i : poor) cells_[i] = {0, weights[i] > 0 ? i : heaviest};
}

void Weighted::run(Seed seed, std::uint32_t epoch, std::int64_t first,
                   std::span<std::int64_t> out) const {
  for (std::int64_t& index : out) {
    const auto words = draw(seed, epoch, first++, Purpose::kWeighted);
    const std::int64_t chosen = below(samples_, words[0], words[1]);
    const AliasCell& cell = cells_[static_cast<std::size_t>(chosen)];
    index = words[2] < cell.threshold ? chosen : cell.other;
  }
}

void Weighted::add_to(Digest& digest) const {
  digest.add("weighted").add(length_).add(samples_);
  for (const AliasCell& cell : cells_) {
    digest.add((std::uint64_t{cell.threshold} << 32) | cell.other);
  }
}

Listed::Listed(std::shared_ptr<const Order> inner, std::vector<std::int64_t> list,
               std::int64_t n)
    : Order(inner->length(), n, "a list"),
      inner_(std::move(inner)),
      list_(std::move(list)) {
  const auto entries = static_cast<std::int64_t>(list_.size());
  if (entries == 0 || entries % inner_->samples() != 0) {
    throw ArgumentError(text("a listed order needs a multiple of ", inner_->samples(),
                             " entries, one list per epoch; found ", entries));
  }
  for (std::size_t i = 0; i < list_.size(); ++i) {
    if (list_[i] < 0 || list_[i] >= n) {
      throw ArgumentError(text("entry ", i, " of the listed order is ", list_[i],
                               ", which is not a sample in [0, ", n, ")"));
    }
  }
}

void Listed::run(Seed seed, std::uint32_t epoch, std::int64_t first,
                 std::span<std::int64_t> out) const {
  inner_->run(seed, epoch, first, out);
  const auto period = static_cast<std::size_t>(inner_->samples());
  const auto* list = list_.data() + epoch % (list_.size() / period) * period;
  for (std::int64_t& index : out) index = list[index];
}

void Listed::add_to(Digest& digest) const {
  digest.add("listed").add(samples_).add(static_cast<std::uint64_t>(list_.size()));
  for (const std::int64_t index : list_) digest.add(index);
  inner_->add_to(digest);
}

SplitOrder::SplitOrder(std::shared_ptr<const Order> inner, const SplitRange& range)
    : Order(inner->length(), range.n, "a split"),
      inner_(std::move(inner)),
      range_(range),
      places_(Grid(range.n), range.seed, 0, Purpose::kSplit) {
  const bool fits = range.first >= 0 && range.length > 0 && range.gap >= 0 &&
                    range.gap <= range.n && range.length <= range.n - range.gap &&
                    range.first <= range.n - range.gap - range.length;
  if (inner_->samples() != range.length) {
    throw ArgumentError(text("a split range of ", range.length,
                             " samples needs an order of as many samples, not ",
                             inner_->samples()));
  }
  if (!fits) {
    throw ArgumentError(text("a split range of ", range.length, " samples from ",
                             range.first, " on does not fit ", range.n, " samples"));
  }
}

void SplitOrder::run(Seed seed, std::uint32_t epoch, std::int64_t first,
                     std::span<std::int64_t> out) const {
  inner_->run(seed, epoch, first, out);
  for (std::int64_t& index : out) {
    index += range_.first;
    if (index >= range_.gap_at) index += range_.gap;
    if (range_.shuffled) index = places_(index);
  }
}

void SplitOrder::add_to(Digest& digest) const {
  digest.add("part").add(range_.n).add(range_.first).add(range_.length);
  digest.add(range_.gap_at).add(range_.gap).add(std::int64_t{range_.shuffled});
  digest.add((std::uint64_t{range_.seed.high} << 32) | range_.seed.low);
  inner_->add_to(digest);
}

}  // namespace millstream
