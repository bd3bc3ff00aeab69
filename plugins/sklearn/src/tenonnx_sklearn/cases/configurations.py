"""Settings of estimators as data: an estimator a line, under the kinds of data that each is fitted on.

Behind ``->`` stand the outputs that are asked for, where they are not those by default.
"""

CONFIGURATIONS: dict[str, str] = {}

CONFIGURATIONS["binary three"] = """
LogisticRegression(C=0.1, penalty="l2", solver="newton-cg") -> predict, decision_function, predict_log_proba
LogisticRegression(solver="saga", l1_ratio=0.5, max_iter=50)
LogisticRegressionCV(Cs=3)
LinearSVC(C=0.1)
RidgeClassifier(alpha=2.0) -> predict, decision_function
RidgeClassifierCV()
SGDClassifier(loss="log_loss", random_state=0)
SGDClassifier(loss="modified_huber", random_state=0)
SGDClassifier(loss="hinge", random_state=0)
Perceptron(penalty="l2", random_state=0)
LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
LinearDiscriminantAnalysis(solver="eigen", n_components=1) -> predict, transform
QuadraticDiscriminantAnalysis(reg_param=0.1) -> predict, predict_proba, decision_function
GaussianNB(var_smoothing=1e-3) -> predict, predict_log_proba, predict_joint_log_proba
BernoulliNB(binarize=0.2) -> predict, predict_proba, predict_joint_log_proba
SVC(kernel="linear")
SVC(kernel="poly", degree=2, coef0=1.0)
SVC(kernel="rbf", gamma=0.3, decision_function_shape="ovo")
SVC(kernel="sigmoid", gamma=0.1)
SVC(break_ties=True)
SVC(probability=True, random_state=0)
NuSVC(nu=0.3)
KNeighborsClassifier(n_neighbors=3, weights="distance")
KNeighborsClassifier(metric="manhattan")
KNeighborsClassifier(metric="minkowski", p=3)
KNeighborsClassifier(metric="chebyshev", algorithm="brute")
KNeighborsClassifier(metric="cosine")
RadiusNeighborsClassifier(radius=3.0, outlier_label="most_frequent")
RadiusNeighborsClassifier(radius=3.0, weights="distance", outlier_label=0)
NearestCentroid(shrink_threshold=0.1)
NearestCentroid(metric="manhattan")
GaussianProcessClassifier(kernel=ConstantKernel(1.0) * RBF(1.0))
MLPClassifier((8,), activation="tanh", max_iter=50, random_state=0)
MLPClassifier((8, 4), activation="relu", max_iter=50, random_state=0)
MLPClassifier((8,), activation="logistic", max_iter=50, random_state=0) -> predict, predict_log_proba
DecisionTreeClassifier(max_depth=4) -> predict, predict_proba, predict_log_proba
DecisionTreeClassifier(ccp_alpha=0.02, class_weight="balanced")
ExtraTreeClassifier(random_state=0)
RandomForestClassifier(15, max_depth=5, random_state=0)
RandomForestClassifier(15, criterion="entropy", class_weight="balanced", random_state=0)
ExtraTreesClassifier(15, random_state=0)
GradientBoostingClassifier(n_estimators=10, subsample=0.7, random_state=0) -> predict, predict_proba, decision_function
GradientBoostingClassifier(n_estimators=10, init="zero")
GradientBoostingClassifier(n_estimators=10, init=LogisticRegression())
HistGradientBoostingClassifier(max_iter=10, class_weight="balanced", interaction_cst="no_interactions")
AdaBoostClassifier(n_estimators=8, random_state=0) -> predict, predict_proba, decision_function
AdaBoostClassifier(DecisionTreeClassifier(max_depth=3), n_estimators=5, learning_rate=0.5, random_state=0)
BaggingClassifier(LogisticRegression(), n_estimators=4, max_features=0.75, random_state=0)
BaggingClassifier(LinearSVC(), n_estimators=4, random_state=0)
BaggingClassifier(n_estimators=5, bootstrap_features=True, random_state=0)
VotingClassifier([("a", LogisticRegression()), ("b", DecisionTreeClassifier(max_depth=3))], voting="soft", weights=[1, 2])
VotingClassifier([("a", LogisticRegression()), ("b", GaussianNB()), ("c", LinearSVC())], voting="hard")
StackingClassifier([("a", LogisticRegression()), ("b", LinearSVC())], passthrough=True)
StackingClassifier([("a", RandomForestClassifier(5, random_state=0))], final_estimator=DecisionTreeClassifier(max_depth=3))
CalibratedClassifierCV(LinearSVC(), cv=2)
CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=2)
CalibratedClassifierCV(RandomForestClassifier(5, random_state=0), cv=2, ensemble=False)
CalibratedClassifierCV(LogisticRegression(), method="temperature", cv=2)
OneVsRestClassifier(LinearSVC())
OneVsRestClassifier(LogisticRegression()) -> predict, predict_proba, decision_function
OneVsOneClassifier(LogisticRegression())
OutputCodeClassifier(LogisticRegression(), code_size=3, random_state=1)
SelfTrainingClassifier(LogisticRegression())
LabelPropagation(gamma=2.0)
LabelSpreading(kernel="knn", n_neighbors=4)
GridSearchCV(SVC(), {"C": [0.5, 2.0]}, cv=2)
RandomizedSearchCV(DecisionTreeClassifier(), {"max_depth": [2, 3]}, n_iter=1, cv=2)
HalvingGridSearchCV(LogisticRegression(), {"C": [0.5, 2.0]}, cv=2)
HalvingRandomSearchCV(LogisticRegression(), {"C": [0.5, 2.0]}, cv=2, random_state=0)
DummyClassifier(strategy="most_frequent")
DummyClassifier(strategy="prior")
FrozenEstimator(LogisticRegression())
RFE(LogisticRegression(), n_features_to_select=2)
RFECV(DecisionTreeClassifier(max_depth=3), cv=2)
make_pipeline(StandardScaler(), PCA(2), LogisticRegression())
make_pipeline(PolynomialFeatures(2), SelectKBest(k=5), LinearSVC())
make_pipeline(SelectFromModel(RandomForestClassifier(5, random_state=0)), GaussianNB())
make_pipeline(StandardScaler().set_output(transform="default"), RandomForestClassifier(5, random_state=0))
make_pipeline(LinearDiscriminantAnalysis(), KNeighborsClassifier(3))
make_pipeline(NeighborhoodComponentsAnalysis(2, random_state=0), KNeighborsClassifier(3))
make_pipeline(FunctionTransformer(np.tanh), LogisticRegression())
RandomForestClassifier(5, random_state=0) -> apply
DecisionTreeClassifier(max_depth=4) -> apply
"""

CONFIGURATIONS["binary"] = """
FixedThresholdClassifier(LogisticRegression(), threshold=0.3)
FixedThresholdClassifier(LinearSVC(), threshold=0.2, response_method="decision_function")
FixedThresholdClassifier(GaussianNB(), threshold=0.7, pos_label=0)
TunedThresholdClassifierCV(LogisticRegression(), scoring="f1", cv=2)
TunedThresholdClassifierCV(RandomForestClassifier(5, random_state=0), cv=2)
GradientBoostingClassifier(loss="exponential", n_estimators=8)
HistGradientBoostingClassifier(max_iter=10, monotonic_cst=[1, 0, 0, -1])
HistGradientBoostingClassifier(max_iter=20, early_stopping=True)
LogisticRegression(class_weight="balanced", fit_intercept=False)
"""

CONFIGURATIONS["words"] = """
LogisticRegression()
RandomForestClassifier(10, random_state=0)
HistGradientBoostingClassifier(max_iter=10)
AdaBoostClassifier(n_estimators=5, random_state=0)
VotingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], voting="hard")
StackingClassifier([("a", LogisticRegression()), ("b", GaussianNB())])
CalibratedClassifierCV(LinearSVC(), cv=2)
KNeighborsClassifier(3)
SVC()
MLPClassifier((8,), max_iter=40, random_state=0)
OneVsOneClassifier(LinearSVC())
DummyClassifier(strategy="constant", constant="b")
GaussianNB()
"""

CONFIGURATIONS["number"] = """
LinearRegression(fit_intercept=False)
LinearRegression(positive=True)
Ridge(alpha=0.5, solver="lsqr")
RidgeCV([0.1, 1.0])
Lasso(alpha=0.01)
ElasticNet(alpha=0.01, l1_ratio=0.3)
Lars(n_nonzero_coefs=2)
LassoLars(alpha=0.01)
OrthogonalMatchingPursuit(n_nonzero_coefs=2)
BayesianRidge() -> predict, predict_std
ARDRegression() -> predict, predict_std
HuberRegressor(epsilon=1.2)
TheilSenRegressor(random_state=0)
RANSACRegressor(random_state=0)
RANSACRegressor(DecisionTreeRegressor(max_depth=3), min_samples=30, random_state=0)
QuantileRegressor(quantile=0.3, alpha=0.01)
SGDRegressor(loss="huber", random_state=0)
LinearSVR(C=0.5, random_state=0)
SVR(kernel="linear")
SVR(kernel="poly", degree=2)
SVR(gamma=0.2)
NuSVR(kernel="sigmoid", gamma=0.05)
KernelRidge(kernel="rbf", gamma=0.2)
KernelRidge(kernel="laplacian", gamma=0.2)
KernelRidge(kernel="polynomial", degree=2)
KernelRidge(kernel="cosine")
KernelRidge(kernel="sigmoid", gamma=0.1)
KNeighborsRegressor(3, weights="distance")
KNeighborsRegressor(metric="manhattan")
KNeighborsRegressor(metric="canberra")
KNeighborsRegressor(metric="cosine")
KNeighborsRegressor(metric="braycurtis")
RadiusNeighborsRegressor(radius=4.0, weights="distance")
RadiusNeighborsRegressor(radius=4.0, metric="manhattan")
GaussianProcessRegressor(RBF(1.0), alpha=0.1, optimizer=None) -> predict, predict_std, predict_cov
GaussianProcessRegressor(ConstantKernel(2.0) * Matern(1.0, nu=1.5) + WhiteKernel(0.1), normalize_y=True) -> predict, predict_std
GaussianProcessRegressor(RationalQuadratic() + DotProduct(), alpha=0.1, optimizer=None) -> predict, predict_std
GaussianProcessRegressor(ExpSineSquared(1.0, 9.0) * RBF([1.0, 2.0, 1.0, 3.0]), alpha=3.0, optimizer=None)
GaussianProcessRegressor(Exponentiation(RBF(2.0), 2) + Matern(nu=2.5), alpha=0.1, optimizer=None)
MLPRegressor(hidden_layer_sizes=(8,), activation="tanh", max_iter=60, random_state=0)
MLPRegressor(hidden_layer_sizes=(8, 4), activation="relu", max_iter=60, random_state=0)
DecisionTreeRegressor(max_depth=5)
DecisionTreeRegressor(criterion="absolute_error", max_leaf_nodes=9)
ExtraTreeRegressor(max_depth=4, random_state=0)
RandomForestRegressor(15, max_depth=5, random_state=0)
RandomForestRegressor(10, criterion="friedman_mse", random_state=0, max_features=0.5)
ExtraTreesRegressor(15, random_state=0, monotonic_cst=[1, 0, 0, 0])
GradientBoostingRegressor(n_estimators=15)
GradientBoostingRegressor(n_estimators=15, loss="quantile", alpha=0.8)
GradientBoostingRegressor(n_estimators=15, loss="huber", init="zero")
GradientBoostingRegressor(n_estimators=10, loss="absolute_error")
GradientBoostingRegressor(n_estimators=10, init=LinearRegression())
HistGradientBoostingRegressor(max_iter=15)
HistGradientBoostingRegressor(max_iter=15, loss="absolute_error")
HistGradientBoostingRegressor(max_iter=15, loss="quantile", quantile=0.2)
AdaBoostRegressor(n_estimators=6, random_state=0)
AdaBoostRegressor(LinearRegression(), n_estimators=4, loss="square", random_state=0)
BaggingRegressor(n_estimators=5, max_features=2, random_state=0)
BaggingRegressor(SVR(), n_estimators=3, random_state=0)
VotingRegressor([("a", LinearRegression()), ("b", DecisionTreeRegressor(max_depth=3))], weights=[2, 1])
StackingRegressor([("a", Ridge()), ("b", DecisionTreeRegressor(max_depth=3))], passthrough=True)
TransformedTargetRegressor(Ridge(), func=np.arcsinh, inverse_func=np.sinh)
TransformedTargetRegressor(Ridge(), transformer=StandardScaler())
TransformedTargetRegressor(Ridge(), transformer=MinMaxScaler())
TransformedTargetRegressor(Ridge(), transformer=QuantileTransformer(n_quantiles=20))
TransformedTargetRegressor(Ridge(), transformer=PowerTransformer())
GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2)
HalvingGridSearchCV(DecisionTreeRegressor(), {"max_depth": [2, 4]}, cv=2)
DummyRegressor(strategy="median")
DummyRegressor(strategy="quantile", quantile=0.7)
FrozenEstimator(Ridge())
PLSRegression(2) -> predict, transform
make_pipeline(StandardScaler(), SVR())
make_pipeline(SplineTransformer(n_knots=4), Ridge())
make_pipeline(Nystroem(n_components=10, random_state=0), Ridge())
make_pipeline(RBFSampler(n_components=10, random_state=0), Ridge())
make_pipeline(PolynomialFeatures(2, interaction_only=True, include_bias=False), LassoCV(cv=3))
make_pipeline(FunctionTransformer(lambda X: np.clip(X, -1, 1) ** 2), LinearRegression())
make_pipeline(QuantileTransformer(n_quantiles=20, output_distribution="normal"), LinearRegression())
make_pipeline(SelectKBest(f_regression, k=2), RandomForestRegressor(5, random_state=0))
RFE(LinearRegression(), n_features_to_select=2)
RandomForestRegressor(5, random_state=0) -> apply
IsotonicRegression(out_of_bounds="clip")
"""

CONFIGURATIONS["above zero"] = """
PoissonRegressor(alpha=0.1)
GammaRegressor(alpha=0.1)
TweedieRegressor(power=1.5, alpha=0.1)
TweedieRegressor(power=0, link="identity")
HistGradientBoostingRegressor(loss="poisson", max_iter=15)
HistGradientBoostingRegressor(loss="gamma", max_iter=15)
RandomForestRegressor(10, criterion="poisson", random_state=0)
TransformedTargetRegressor(LinearRegression(), func=np.log, inverse_func=np.exp)
TransformedTargetRegressor(Ridge(), func=np.log1p, inverse_func=np.expm1)
TransformedTargetRegressor(Ridge(), transformer=FunctionTransformer(np.sqrt, np.square))
"""

CONFIGURATIONS["several numbers"] = """
LinearRegression()
Ridge()
RidgeCV()
MultiTaskLasso(alpha=0.01)
MultiTaskElasticNet(alpha=0.01)
KNeighborsRegressor(3, weights="distance")
RadiusNeighborsRegressor(radius=4.0)
DecisionTreeRegressor(max_depth=4)
RandomForestRegressor(8, random_state=0)
ExtraTreesRegressor(8, random_state=0)
MLPRegressor(hidden_layer_sizes=(8,), max_iter=50, random_state=0)
KernelRidge(kernel="rbf", gamma=0.2)
GaussianProcessRegressor(RBF(1.0), alpha=0.1, optimizer=None) -> predict, predict_std
MultiOutputRegressor(GradientBoostingRegressor(n_estimators=5))
MultiOutputRegressor(HistGradientBoostingRegressor(max_iter=5))
RegressorChain(Ridge(), order=[1, 0])
RegressorChain(DecisionTreeRegressor(max_depth=3))
PLSRegression(2)
PLSCanonical(2) -> transform
CCA(1) -> transform
PLSSVD(1) -> transform
DummyRegressor(strategy="mean")
TransformedTargetRegressor(Ridge(), transformer=StandardScaler())
BaggingRegressor(Ridge(), n_estimators=3, random_state=0)
RANSACRegressor(random_state=0)
"""

CONFIGURATIONS["several labels"] = """
MultiOutputClassifier(LogisticRegression())
MultiOutputClassifier(RandomForestClassifier(5, random_state=0)) -> predict
ClassifierChain(LogisticRegression(), order=[1, 0])
ClassifierChain(LogisticRegression(), chain_method="predict_proba")
ClassifierChain(LinearSVC(), chain_method="decision_function")
OneVsRestClassifier(LogisticRegression())
OneVsRestClassifier(LinearSVC())
DecisionTreeClassifier(max_depth=4)
RandomForestClassifier(10, random_state=0)
ExtraTreesClassifier(10, random_state=0)
KNeighborsClassifier(3)
RadiusNeighborsClassifier(radius=4.0)
RidgeClassifier()
RidgeClassifierCV()
MLPClassifier((8,), max_iter=50, random_state=0)
DummyClassifier(strategy="most_frequent")
"""

CONFIGURATIONS["rows"] = """
StandardScaler(with_mean=False)
StandardScaler(with_std=False)
RobustScaler(quantile_range=(10, 90), unit_variance=True)
RobustScaler(with_centering=False)
MinMaxScaler((-1, 1), clip=True)
MaxAbsScaler()
Normalizer("l1")
Normalizer("max")
Binarizer(threshold=0.3)
PolynomialFeatures(3)
PolynomialFeatures((2, 3), include_bias=False)
PowerTransformer("yeo-johnson")
PowerTransformer(standardize=False)
QuantileTransformer(n_quantiles=30)
QuantileTransformer(n_quantiles=30, output_distribution="normal")
SplineTransformer()
SplineTransformer(n_knots=4, degree=2, extrapolation="linear")
SplineTransformer(extrapolation="continue", include_bias=False)
SplineTransformer(extrapolation="periodic")
SplineTransformer(n_knots=4, knots="quantile", extrapolation="constant")
KBinsDiscretizer(4, encode="ordinal", strategy="quantile", quantile_method="averaged_inverted_cdf")
KBinsDiscretizer(4, encode="onehot-dense", strategy="uniform")
KBinsDiscretizer(3, strategy="kmeans")
FunctionTransformer(np.exp)
FunctionTransformer(lambda X: np.log1p(np.abs(X)))
FunctionTransformer(lambda X: np.column_stack([X[:, 0] * X[:, 1], X.sum(axis=1)]))
FunctionTransformer(lambda X: np.where(X > 0, X, 0.1 * X))
FunctionTransformer(lambda X, k: X[:, k:], kw_args={"k": 2})
FunctionTransformer()
PCA(2)
PCA(2, whiten=True)
IncrementalPCA(2)
KernelPCA(2, kernel="rbf", gamma=0.2)
KernelPCA(2, kernel="poly", degree=2)
KernelPCA(2, kernel="cosine")
SparsePCA(2, random_state=0, max_iter=20)
TruncatedSVD(2)
FastICA(2, random_state=0, whiten="unit-variance")
FactorAnalysis(2)
DictionaryLearning(2, random_state=0, max_iter=5, transform_algorithm="threshold", transform_alpha=0.1)
MiniBatchDictionaryLearning(2, random_state=0, max_iter=5)
SparseCoder(np.eye(4)[:3], transform_algorithm="omp", transform_n_nonzero_coefs=2)
SparseCoder(np.eye(4)[:3], transform_algorithm="threshold", transform_alpha=0.3)
GaussianRandomProjection(2, random_state=0)
SparseRandomProjection(2, random_state=0)
RBFSampler(gamma=0.5, n_components=12, random_state=0)
Nystroem(kernel="poly", degree=2, n_components=12, random_state=0)
Nystroem(kernel="laplacian", n_components=12, random_state=0)
PolynomialCountSketch(n_components=16, random_state=0)
FeatureAgglomeration(2)
FeatureAgglomeration(2, pooling_func=np.max)
VarianceThreshold(0.5)
Isomap(n_neighbors=6)
LocallyLinearEmbedding(n_neighbors=6, random_state=0)
KMeans(3, n_init=1, random_state=0) -> predict, transform
MiniBatchKMeans(3, n_init=1, random_state=0) -> predict, transform
BisectingKMeans(3, random_state=0) -> predict, transform
MeanShift()
AffinityPropagation(random_state=0)
Birch(n_clusters=3) -> predict, transform
GaussianMixture(3, random_state=0) -> predict, predict_proba, score_samples
GaussianMixture(2, covariance_type="diag", random_state=0) -> predict, predict_proba, score_samples
GaussianMixture(2, covariance_type="spherical", random_state=0)
GaussianMixture(2, covariance_type="tied", random_state=0)
BayesianGaussianMixture(n_components=3, random_state=0, max_iter=30) -> predict, score_samples
KernelDensity(bandwidth=0.7)
KernelDensity(kernel="tophat", bandwidth=3.0)
KernelDensity(kernel="epanechnikov", bandwidth=3.0)
KernelDensity(kernel="exponential", bandwidth=0.7)
IsolationForest(n_estimators=10, random_state=0) -> predict, decision_function, score_samples
IsolationForest(n_estimators=10, contamination=0.1, max_features=0.5, random_state=0)
OneClassSVM(nu=0.2, gamma=0.3) -> predict, decision_function, score_samples
OneClassSVM(kernel="linear", nu=0.2)
SGDOneClassSVM(random_state=0)
LocalOutlierFactor(novelty=True) -> predict, decision_function, score_samples
LocalOutlierFactor(5, novelty=True, metric="manhattan")
EllipticEnvelope(random_state=0) -> predict, decision_function, score_samples
EmpiricalCovariance() -> mahalanobis
MinCovDet(random_state=0) -> mahalanobis
BernoulliRBM(3, n_iter=3, random_state=0)
RandomTreesEmbedding(5, max_depth=3, random_state=0)
RandomTreesEmbedding(5, max_depth=3, random_state=0, sparse_output=False)
KNeighborsTransformer(n_neighbors=3)
KNeighborsTransformer(n_neighbors=3, mode="connectivity")
RadiusNeighborsTransformer(radius=2.0)
FeatureUnion([("a", StandardScaler()), ("b", PCA(2))], transformer_weights={"a": 2.0})
ColumnTransformer([("a", StandardScaler(), [0, 2]), ("b", KBinsDiscretizer(3), [1])], remainder="passthrough")
ColumnTransformer([("a", "passthrough", slice(0, 2)), ("b", "drop", [2])], remainder=MinMaxScaler())
make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0))
make_pipeline(StandardScaler(), IsolationForest(n_estimators=5, random_state=0))
make_pipeline(StandardScaler(), "passthrough", PCA(2))
"""

CONFIGURATIONS["positive"] = """
NMF(2, init="nndsvda", max_iter=300)
MiniBatchNMF(2, init="nndsvda")
LatentDirichletAllocation(2, random_state=0, max_iter=5)
AdditiveChi2Sampler()
SkewedChi2Sampler(n_components=8, random_state=0)
PowerTransformer("box-cox")
Nystroem(kernel="additive_chi2", n_components=8, random_state=0)
Nystroem(kernel="chi2", n_components=8, random_state=0)
FunctionTransformer(np.log)
TfidfTransformer(sublinear_tf=True)
TfidfTransformer(norm=None, use_idf=False)
"""

CONFIGURATIONS["counts three"] = """
MultinomialNB(alpha=0.5) -> predict, predict_proba, predict_joint_log_proba
ComplementNB(norm=True)
CategoricalNB(min_categories=12)
BernoulliNB()
OneHotEncoder(handle_unknown="ignore")
OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=20)
OneHotEncoder(drop="if_binary", handle_unknown="ignore")
OneHotEncoder(drop="first", sparse_output=False)
OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
OrdinalEncoder(min_frequency=15)
TargetEncoder()
TargetEncoder(smooth=2.0)
SelectKBest(chi2, k=2)
SelectPercentile(chi2, percentile=50)
HistGradientBoostingClassifier(categorical_features=[0, 2], max_iter=10)
make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression())
make_pipeline(TfidfTransformer(), LinearSVC())
"""

CONFIGURATIONS["counts number"] = """
TargetEncoder(target_type="continuous")
HistGradientBoostingRegressor(categorical_features=[0, 1, 2, 3], max_iter=10)
make_pipeline(OneHotEncoder(handle_unknown="ignore"), Ridge())
"""

CONFIGURATIONS["missing"] = """
SimpleImputer(strategy="median")
SimpleImputer(strategy="most_frequent")
SimpleImputer(strategy="constant", fill_value=-1.0, add_indicator=True)
KNNImputer(n_neighbors=3)
KNNImputer(weights="distance", add_indicator=True)
IterativeImputer(random_state=0, max_iter=3)
IterativeImputer(DecisionTreeRegressor(max_depth=3), random_state=0, max_iter=2)
IterativeImputer(min_value=-1, max_value=1, max_iter=3, n_nearest_features=2, random_state=0)
MissingIndicator()
MissingIndicator(features="all")
StandardScaler()
MinMaxScaler()
RobustScaler()
MaxAbsScaler()
PowerTransformer()
QuantileTransformer(n_quantiles=20)
FeatureUnion([("a", SimpleImputer()), ("b", MissingIndicator())])
"""

CONFIGURATIONS["missing binary"] = """
DecisionTreeClassifier(max_depth=5)
RandomForestClassifier(10, random_state=0)
ExtraTreesClassifier(10, random_state=0)
HistGradientBoostingClassifier(max_iter=15)
BaggingClassifier(DecisionTreeClassifier(max_depth=3), n_estimators=4, random_state=0)
make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression())
make_pipeline(KNNImputer(), GaussianNB())
"""

CONFIGURATIONS["missing number"] = """
DecisionTreeRegressor(max_depth=5)
RandomForestRegressor(10, random_state=0)
HistGradientBoostingRegressor(max_iter=15)
make_pipeline(IterativeImputer(max_iter=2), LinearRegression())
"""

CONFIGURATIONS["texts"] = """
CountVectorizer()
CountVectorizer(binary=True, lowercase=False)
CountVectorizer(analyzer="char", ngram_range=(2, 3))
CountVectorizer(analyzer="char_wb", ngram_range=(1, 3), max_features=60)
CountVectorizer(stop_words="english", ngram_range=(1, 2))
CountVectorizer(strip_accents="unicode", min_df=2)
CountVectorizer(strip_accents="ascii")
CountVectorizer(token_pattern=r"[a-z]+")
CountVectorizer(tokenizer=str.split, token_pattern=None)
TfidfVectorizer()
TfidfVectorizer(sublinear_tf=True, norm="l1", max_df=0.9)
TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), max_features=80)
TfidfVectorizer(ngram_range=(1, 2), use_idf=False)
HashingVectorizer(n_features=32, lowercase=False)
HashingVectorizer(n_features=32, lowercase=False, alternate_sign=False, norm=None)
make_pipeline(CountVectorizer(), TfidfTransformer())
"""

CONFIGURATIONS["texts binary"] = """
make_pipeline(TfidfVectorizer(), LogisticRegression())
make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LinearSVC())
make_pipeline(CountVectorizer(), MultinomialNB())
make_pipeline(CountVectorizer(), ComplementNB())
make_pipeline(TfidfVectorizer(max_features=20), RandomForestClassifier(5, random_state=0))
make_pipeline(TfidfVectorizer(), TruncatedSVD(5, random_state=0), SGDClassifier(loss="log_loss", random_state=0))
make_pipeline(TfidfVectorizer(), SelectKBest(k=10), LogisticRegression())
"""

CONFIGURATIONS["table binary"] = """
make_pipeline(ColumnTransformer([("t", OneHotEncoder(handle_unknown="ignore"), [0]), ("n", StandardScaler(), [1, 2])]), LogisticRegression())
make_pipeline(ColumnTransformer([("t", OrdinalEncoder(), [0])], remainder="passthrough"), RandomForestClassifier(5, random_state=0))
make_pipeline(ColumnTransformer([("t", OrdinalEncoder(), [0])], remainder="passthrough"), HistGradientBoostingClassifier(max_iter=5))
make_pipeline(ColumnTransformer([("t", TargetEncoder(), [0]), ("n", SimpleImputer(), [1, 2])]), GradientBoostingClassifier(n_estimators=5))
make_pipeline(ColumnTransformer([("t", OneHotEncoder(drop="first"), [0]), ("n", KBinsDiscretizer(3), [1])]), LinearSVC())
make_pipeline(ColumnTransformer([("t", CountVectorizer(), 0)], remainder=MinMaxScaler()), LogisticRegression())
make_pipeline(make_column_transformer((make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")), [0]), (make_pipeline(SimpleImputer(), StandardScaler()), [1, 2])), SVC())
"""

BOOSTERS = {
    "binary three": """
LGBMClassifier(n_estimators=10, verbose=-1)
LGBMClassifier(n_estimators=10, boosting_type="dart", verbose=-1)
LGBMClassifier(n_estimators=10, boosting_type="rf", bagging_freq=1, bagging_fraction=0.7, verbose=-1)
LGBMClassifier(n_estimators=10, data_sample_strategy="goss", verbose=-1)
LGBMClassifier(n_estimators=10, linear_tree=True, verbose=-1)
LGBMClassifier(n_estimators=10, extra_trees=True, class_weight="balanced", verbose=-1)
XGBClassifier(n_estimators=10)
XGBClassifier(n_estimators=10, booster="dart", rate_drop=0.3)
XGBClassifier(n_estimators=10, base_score=0.3, max_leaves=8, grow_policy="lossguide")
XGBClassifier(n_estimators=10, booster="gblinear")
XGBClassifier(n_estimators=10, tree_method="exact")
XGBRFClassifier(n_estimators=10)
CatBoostClassifier(iterations=10, verbose=0, allow_writing_files=False)
CatBoostClassifier(iterations=10, grow_policy="Depthwise", verbose=0, allow_writing_files=False)
CatBoostClassifier(iterations=10, grow_policy="Lossguide", verbose=0, allow_writing_files=False)
VotingClassifier([("a", LGBMClassifier(n_estimators=5, verbose=-1)), ("b", LogisticRegression())], voting="soft")
make_pipeline(StandardScaler(), XGBClassifier(n_estimators=5))
CalibratedClassifierCV(XGBClassifier(n_estimators=5), cv=2)
""",
    "binary": """
LGBMClassifier(n_estimators=10, objective="cross_entropy", verbose=-1)
LGBMClassifier(n_estimators=10, sigmoid=2.0, is_unbalance=True, verbose=-1)
XGBClassifier(n_estimators=10, objective="binary:logitraw")
XGBClassifier(n_estimators=10, objective="binary:hinge")
XGBClassifier(n_estimators=10, scale_pos_weight=3.0)
CatBoostClassifier(iterations=10, loss_function="CrossEntropy", verbose=0, allow_writing_files=False)
""",
    "three": """
LGBMClassifier(n_estimators=10, objective="multiclassova", verbose=-1)
XGBClassifier(n_estimators=10, objective="multi:softmax")
XGBClassifier(n_estimators=10, multi_strategy="multi_output_tree")
CatBoostClassifier(iterations=10, loss_function="MultiClassOneVsAll", verbose=0, allow_writing_files=False)
""",
    "words": """
LGBMClassifier(n_estimators=10, verbose=-1)
CatBoostClassifier(iterations=10, verbose=0, allow_writing_files=False)
""",
    "number": """
LGBMRegressor(n_estimators=10, verbose=-1)
LGBMRegressor(n_estimators=10, objective="l1", verbose=-1)
LGBMRegressor(n_estimators=10, objective="huber", verbose=-1)
LGBMRegressor(n_estimators=10, objective="fair", verbose=-1)
LGBMRegressor(n_estimators=10, objective="quantile", alpha=0.7, verbose=-1)
LGBMRegressor(n_estimators=10, linear_tree=True, verbose=-1)
LGBMRegressor(n_estimators=10, linear_tree=True, boosting_type="dart", verbose=-1)
LGBMRegressor(n_estimators=10, boosting_type="rf", bagging_freq=1, bagging_fraction=0.7, verbose=-1)
LGBMRegressor(n_estimators=10, reg_sqrt=True, verbose=-1)
LGBMRegressor(n_estimators=10, zero_as_missing=True, verbose=-1)
LGBMRegressor(n_estimators=10, use_missing=False, verbose=-1)
LGBMRegressor(n_estimators=10, monotone_constraints=[1, 0, 0, 0], verbose=-1)
XGBRegressor(n_estimators=10)
XGBRegressor(n_estimators=10, objective="reg:absoluteerror")
XGBRegressor(n_estimators=10, objective="reg:pseudohubererror")
XGBRegressor(n_estimators=10, objective="reg:quantileerror", quantile_alpha=0.7)
XGBRegressor(n_estimators=10, objective="reg:quantileerror", quantile_alpha=np.array([0.2, 0.8]))
XGBRegressor(n_estimators=10, booster="dart", rate_drop=0.3, one_drop=True)
XGBRegressor(n_estimators=10, booster="gblinear")
XGBRegressor(n_estimators=10, base_score=2.0, monotone_constraints=(1, 0, 0, 0))
XGBRegressor(n_estimators=10, missing=0.0)
XGBRFRegressor(n_estimators=10)
CatBoostRegressor(iterations=10, verbose=0, allow_writing_files=False)
CatBoostRegressor(iterations=10, loss_function="MAE", verbose=0, allow_writing_files=False)
CatBoostRegressor(iterations=10, loss_function="Quantile:alpha=0.7", verbose=0, allow_writing_files=False)
CatBoostRegressor(iterations=10, loss_function="RMSEWithUncertainty", verbose=0, allow_writing_files=False)
CatBoostRegressor(iterations=10, grow_policy="Lossguide", verbose=0, allow_writing_files=False)
""",
    "above zero": """
LGBMRegressor(n_estimators=10, objective="poisson", verbose=-1)
LGBMRegressor(n_estimators=10, objective="gamma", verbose=-1)
LGBMRegressor(n_estimators=10, objective="tweedie", verbose=-1)
LGBMRegressor(n_estimators=10, objective="mape", verbose=-1)
XGBRegressor(n_estimators=10, objective="count:poisson")
XGBRegressor(n_estimators=10, objective="reg:gamma")
XGBRegressor(n_estimators=10, objective="reg:tweedie", tweedie_variance_power=1.3)
XGBRegressor(n_estimators=10, objective="reg:squaredlogerror")
XGBRegressor(n_estimators=10, objective="survival:cox")
CatBoostRegressor(iterations=10, loss_function="Poisson", verbose=0, allow_writing_files=False)
CatBoostRegressor(iterations=10, loss_function="Tweedie:variance_power=1.5", verbose=0, allow_writing_files=False)
""",
    "unit": """
LGBMRegressor(n_estimators=10, objective="cross_entropy", verbose=-1)
LGBMRegressor(n_estimators=10, objective="cross_entropy_lambda", verbose=-1)
XGBRegressor(n_estimators=10, objective="reg:logistic")
CatBoostRegressor(iterations=10, loss_function="LogCosh", verbose=0, allow_writing_files=False)
""",
    "several numbers": """
XGBRegressor(n_estimators=10)
XGBRegressor(n_estimators=10, multi_strategy="multi_output_tree")
CatBoostRegressor(iterations=10, loss_function="MultiRMSE", verbose=0, allow_writing_files=False)
MultiOutputRegressor(LGBMRegressor(n_estimators=5, verbose=-1))
""",
    "several labels": """
XGBClassifier(n_estimators=10)
CatBoostClassifier(iterations=10, loss_function="MultiLogloss", verbose=0, allow_writing_files=False)
MultiOutputClassifier(LGBMClassifier(n_estimators=5, verbose=-1))
""",
    "missing binary": """
LGBMClassifier(n_estimators=10, verbose=-1)
LGBMClassifier(n_estimators=10, zero_as_missing=True, verbose=-1)
LGBMClassifier(n_estimators=10, linear_tree=True, verbose=-1)
XGBClassifier(n_estimators=10)
CatBoostClassifier(iterations=10, verbose=0, allow_writing_files=False)
CatBoostClassifier(iterations=10, nan_mode="Max", verbose=0, allow_writing_files=False)
""",
    "missing number": """
LGBMRegressor(n_estimators=10, verbose=-1)
LGBMRegressor(n_estimators=10, linear_tree=True, verbose=-1)
XGBRegressor(n_estimators=10)
CatBoostRegressor(iterations=10, verbose=0, allow_writing_files=False)
""",
    "counts three": """
LGBMClassifier(n_estimators=10, categorical_feature=[0, 2], min_data_per_group=5, verbose=-1)
LGBMClassifier(n_estimators=10, categorical_feature=[0, 2], max_cat_to_onehot=12, verbose=-1)
XGBClassifier(n_estimators=10, enable_categorical=True, feature_types=["c", "q", "c", "q"])
""",
    "counts number": """
LGBMRegressor(n_estimators=10, categorical_feature=[0, 1], min_data_per_group=5, linear_tree=True, verbose=-1)
XGBRegressor(n_estimators=10, enable_categorical=True, feature_types=["c", "q", "c", "c"], max_cat_to_onehot=1)
XGBRegressor(n_estimators=10, enable_categorical=True, feature_types=["c", "q", "c", "c"], max_cat_to_onehot=20)
""",
    "ranked": """
LGBMRanker(n_estimators=10, min_child_samples=5, verbose=-1)
XGBRanker(n_estimators=10)
CatBoostRanker(iterations=10, verbose=0, allow_writing_files=False)
""",
}
